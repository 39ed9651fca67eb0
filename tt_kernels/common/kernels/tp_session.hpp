// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// How the chips of a TP group take one decision over all heads.
//
// In call n (each chip counts for itself) every chip sends its numbers to all others and waits for theirs. All then add
// the same numbers in the same order, chip 0 first, and so have the same sums bit by bit. If the sums would accept a
// guess, every chip votes, and the guess is accepted if all vote for it. A chip that misses numbers votes against at
// once, so that the others need not wait for its timeout. Hence, while chips run and packets arrive within the timeout,
// all chips of a group decide alike; a chip that does not hear from another accepts nothing, records that in `status`
// and takes no part in later calls.
//
// A chip cannot leave call n before it has the numbers of all others in it, which they send after they have read those
// of call n - 1: two slots suffice. Counters only grow: nothing is reset between calls, in eager mode or in a trace.

#pragma once

#include <cstdint>
#include <new>

#include "bounded_wait.hpp"
#include "peer_link.hpp"

namespace tp {

constexpr uint32_t max_chips = 8;
constexpr uint32_t max_users = 8;
constexpr uint32_t kinds = 3;  // numbers per user: squared distance, squared norm, bound

// What a chip keeps of its calls with the others of its group, the first words of its state; tp_group.py reads it on the
// host.
struct Calls {
    uint32_t arrivals[max_chips];  // incremented by each chip of the group
    uint32_t calls;
    uint32_t status;  // 0 while all is well
    uint32_t status_call;
    uint32_t silent;  // the chip that was missed
};
static_assert(offsetof(Calls, calls) == 8 * 4 && sizeof(Calls) == 12 * 4);

// tp_group.py must agree on these.
enum Status : uint32_t {
    numbers_absent = 1,  // of the chip in `silent`
    vote_absent = 2,     // of the chip in `silent`
    link_blocked = 3,    // the fabric took no packet
    out_of_step = 4,     // the chip in `silent` is in another call
};

// float32 bits.
struct Numbers {
    uint32_t call;
    uint32_t padding[7];
    uint32_t of[kinds][max_users];
};

// call * 2, plus 1 for a vote in favour; on its own line, which arrives as a whole.
struct Vote {
    uint32_t word;
    uint32_t padding[3];
};

struct State {
    Calls group;
    uint32_t accepted;  // calls in which all voted in favour
    uint32_t padding[3];
    Vote outgoing_vote[2];  // the second is not used: what follows stays aligned
    Vote votes[2][max_chips];
    Numbers outgoing;
    Numbers mailbox[2][max_chips];
};
static_assert(
    sizeof(Numbers) == 128 && sizeof(State) == 64 + 32 + 256 + 17 * 128 &&
    offsetof(State, accepted) == 12 * 4);

// The connections to the neighbouring chips of the group, open from construction to close(). Runtime arguments: whether
// there is a next chip forward, and backward; then the PeerLink arguments of each. None is opened unless `wanted`.
class Links {
public:
    Links(uint32_t next, uint64_t timeout, bool wanted) {
        const bool present[2] = {get_arg_val<uint32_t>(next) != 0, get_arg_val<uint32_t>(next + 1) != 0};
        next += 2;
        for (uint32_t direction = 0; direction < 2; ++direction) {
            if (wanted && present[direction]) {
                link_[direction] = new (storage_[direction]) PeerLink(next, timeout, false);
            }
        }
        for_each([](PeerLink& link) { link.finish_opening(); });
    }

    // The link from chip `self` towards chip `other`, set to its distance.
    PeerLink& towards(uint32_t self, uint32_t other) {
        PeerLink& link = *link_[other > self ? 0 : 1];
        link.set_hops(other > self ? other - self : self - other);
        return link;
    }

    // Packets go to all `chips` of the group in the link's direction from chip `self`.
    void set_reach(uint32_t self, uint32_t chips) {
        const uint32_t reach[2] = {chips - 1 - self, self};
        for (uint32_t direction = 0; direction < 2; ++direction) {
            if (link_[direction] != nullptr) {
                link_[direction]->set_reach(reach[direction]);
            }
        }
    }

    // The links there are, one for each direction.
    template <typename Visit>
    void for_each(Visit visit) {
        for (PeerLink* link : link_) {
            if (link != nullptr) {
                visit(*link);
            }
        }
    }

    void close() {
        for_each([](PeerLink& link) {
            link.drain();
            link.close();
        });
    }

private:
    alignas(PeerLink) uint8_t storage_[2][sizeof(PeerLink)];
    PeerLink* link_[2] = {nullptr, nullptr};
};

// Calls that every chip of a group counts for itself, with a bound on each wait for another.
class Group {
public:
    // state: its L1 address, the same on all chips. self: this chip's index among the `chips` of its group.
    Group(uint32_t state, uint32_t self, uint32_t chips, uint64_t timeout) :
        calls_(reinterpret_cast<volatile tt_l1_ptr Calls*>(state)),
        self_(self),
        chips_(chips),
        timeout_(timeout) {}

    // Whether no call has failed.
    bool usable() const { return calls_->status == 0; }

    // The counter of this chip on the others, incremented once everything of a call has been written to them.
    uint32_t arrival() const { return address(offsetof(Calls, arrivals) + self_ * sizeof(uint32_t)); }

protected:
    // The number of the call that it starts.
    uint32_t next_call() {
        const uint32_t call = calls_->calls + 1;
        calls_->calls = call;
        return call;
    }

    // Waits until that chip has incremented its counter in this call; else fails with `absent`.
    bool await(uint32_t chip, uint32_t absent) {
        const uint32_t call = calls_->calls;
        const auto arrived = [&] { return bounded::reached(&calls_->arrivals[chip], call); };
        return bounded::wait(timeout_, arrived) || fail(absent, chip);
    }

    // Whether visit(other) was true for every other chip; stops at the first for which it was not.
    template <typename Visit>
    bool for_each_other(Visit visit) {
        for (uint32_t chip = 0; chip < chips_; ++chip) {
            if (chip != self_ && !visit(chip)) {
                return false;
            }
        }
        return true;
    }

    // Records the failure: every later call returns at once.
    bool fail(uint32_t status, uint32_t chip) {
        calls_->status = status;
        calls_->status_call = calls_->calls;
        calls_->silent = chip;
        return false;
    }

    uint32_t address(uint32_t offset) const { return reinterpret_cast<uint32_t>(calls_) + offset; }

    volatile tt_l1_ptr Calls* calls_;
    uint32_t self_, chips_;
    uint64_t timeout_;
};

class Session : public Group {
public:
    Session(uint32_t state, uint32_t self, uint32_t chips, uint64_t timeout) :
        Group(state, self, chips, timeout), state_(reinterpret_cast<volatile tt_l1_ptr State*>(state)) {}

    // Send the numbers of `users` and replace them by the sums over the group; returns whether that succeeded.
    bool sum(Links& links, uint32_t users, uint32_t (&numbers)[kinds][max_users]) {
        const uint32_t call = next_call();
        state_->outgoing.call = call;
        for (uint32_t kind = 0; kind < kinds; ++kind) {
            for (uint32_t user = 0; user < users; ++user) {
                state_->outgoing.of[kind][user] = numbers[kind][user];
            }
        }
        const uint32_t slot = offsetof(State, mailbox) + (call % 2 * max_chips + self_) * sizeof(Numbers);
        const bool sent = for_each_other([&](uint32_t other) {
            PeerLink& link = links.towards(self_, other);
            return link.write(
                       address(offsetof(State, outgoing)), link.core_address(address(slot)),
                       sizeof(Numbers)) &&
                   link.increment(arrival());
        });
        if (!sent) {
            return fail(link_blocked, self_);
        }
        const bool complete = for_each_other([&](uint32_t other) {
            return await(other, numbers_absent) &&
                   (state_->mailbox[call % 2][other].call == call || fail(out_of_step, other));
        });
        if (!complete) {
            return false;
        }
        for (uint32_t kind = 0; kind < kinds; ++kind) {
            for (uint32_t user = 0; user < users; ++user) {
                float total = 0;
                for (uint32_t chip = 0; chip < chips_; ++chip) {
                    const uint32_t bits =
                        chip == self_ ? numbers[kind][user] : state_->mailbox[call % 2][chip].of[kind][user];
                    total += __builtin_bit_cast(float, bits);
                }
                numbers[kind][user] = __builtin_bit_cast(uint32_t, total);
            }
        }
        return true;
    }

    // Vote in the call that sum() began, without waiting for the others.
    bool vote(Links& links, bool favour) {
        const uint32_t call = calls_->calls;
        state_->outgoing_vote[0].word = 2 * call + favour;
        const uint32_t slot = offsetof(State, votes) + (call % 2 * max_chips + self_) * sizeof(Vote);
        return for_each_other([&](uint32_t other) {
                   PeerLink& link = links.towards(self_, other);
                   return link.write(
                       address(offsetof(State, outgoing_vote)), link.core_address(address(slot)),
                       sizeof(Vote));
               }) ||
               fail(link_blocked, self_);
    }

    // Whether all others voted in favour. They may first have to give up on their own peers.
    bool all_in_favour() {
        const uint32_t call = calls_->calls;
        const bool found = for_each_other([&](uint32_t other) {
            const volatile tt_l1_ptr uint32_t* word = &state_->votes[call % 2][other].word;
            if (!bounded::wait(vote_patience * timeout_, [&] { return *word / 2 == call; })) {
                return fail(vote_absent, other);
            }
            return *word % 2 == 1;
        });
        state_->accepted = state_->accepted + found;
        return found;
    }

private:
    // A chip waits for numbers, for its peer, for the fabric and for an acknowledgement before it votes.
    static constexpr uint64_t vote_patience = 5;

    volatile tt_l1_ptr State* state_;
};

}  // namespace tp
