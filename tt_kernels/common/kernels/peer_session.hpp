// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The calls between the two ranks of a pair, one after another, so that no two calls can mix.
//
// Each rank keeps a state in the L1 of its exchange core for the life of the model. In call n (each rank counts for
// itself) a rank writes its priorities, or the role it has chosen, into slot n % 2 of the peer's mailbox and increments
// the peer's `arrivals`. That also says: my buffers of call n may be written. A rank that arrives with a role writes
// nothing to a peer that does not arrive with the other role. A rank is at most one call ahead, since it cannot leave
// call n before its peer has arrived in it; so two slots suffice. Data that follow are confirmed by `deliveries`; if
// the sender must know that they were taken, the receiver confirms by `acknowledgements`. Counters only grow: nothing
// is reset between calls, in eager mode or in a trace.
//
// A wait that ends without the peer is recorded in `status`, and every later call returns at once.

#pragma once

#include <cstdint>

#include "bounded_wait.hpp"
#include "priority.hpp"

namespace peer {

// tt_kernels/common/peer.py reads the state on the host and must agree on these.
enum Status : uint32_t {
    fine = 0,
    peer_absent = 1,      // the peer did not arrive in this call
    delivery_absent = 2,  // the peer arrived, but its data did not
    link_blocked = 3,     // the fabric took no packet
    out_of_step = 4,      // the peer is in another call
    nobody = 5,           // both priorities are 0: neither rank holds the result
    same_role = 6,        // both send, or both receive
    unlike_users = 7,     // they skip different users
    unacknowledged = 8,   // the peer did not say that it has the data
    unsynchronised = 9,   // the exchange before this call failed on this rank
};

// What a rank does in a call. It is open if both decide from the priorities they send each other.
enum Role : uint32_t { open = 0, sender = 1, receiver = 2 };

struct Message {
    uint32_t call;
    uint32_t role;
    uint32_t users;       // with a role: a bit for each user that is not skipped
    uint32_t padding[5];  // DRAM is read to addresses of its own alignment, 32 bytes
    uint32_t row[priority::max_users];
};

struct State {
    uint32_t arrivals;  // incremented by the peer
    uint32_t padding0[3];
    uint32_t deliveries;  // incremented by the peer
    uint32_t padding1[3];
    uint32_t acknowledgements;  // incremented by the peer
    uint32_t padding2[3];
    uint32_t calls;
    uint32_t expected;  // deliveries
    uint32_t status;
    uint32_t status_call;
    uint32_t sent;  // calls in which this rank's tensor was taken
    uint32_t ties;
    uint32_t awaited;  // acknowledgements
    uint32_t padding3[5];
    Message outgoing;
    Message mailbox[2];
};
static_assert(sizeof(Message) == 160 && sizeof(State) == 96 + 3 * 160 && offsetof(State, status) == 14 * 4);

class Session {
public:
    // state: its L1 address, the same on both ranks' cores.
    Session(uint32_t state, uint64_t timeout) :
        state_(reinterpret_cast<volatile tt_l1_ptr State*>(state)), timeout_(timeout) {}

    volatile tt_l1_ptr State& state() { return *state_; }
    bool usable() const { return state_->status == fine; }
    const volatile tt_l1_ptr uint32_t* priorities() const { return state_->outgoing.row; }
    // The address of priorities().
    uint32_t priorities_address() const {
        return address(offsetof(State, outgoing) + offsetof(Message, row));
    }
    const volatile tt_l1_ptr uint32_t* peer_priorities() const { return mailbox().row; }

    // Start the next call with this rank's priorities, which are at priorities_address().
    template <typename Link>
    bool arrive(Link& link) {
        return announce(link, open, 0, sizeof(Message));
    }

    // Start the next call in a role, with a bit for each user that is not skipped; no priorities are sent.
    template <typename Link>
    bool arrive_as(Link& link, Role role, uint32_t users) {
        return announce(link, role, users, offsetof(Message, row));
    }

    // Wait for the peer in the same call; its priorities are in peer_priorities() after that.
    bool await_peer() {
        if (!bounded::wait(timeout_, [this] { return bounded::reached(&state_->arrivals, state_->calls); })) {
            return fail(peer_absent);
        }
        return mailbox().call == state_->calls || fail(out_of_step);
    }

    // The same after arrive_as(); also checks that the peer has the other role and the same users.
    bool await_opposite() {
        return await_peer() &&
               (mailbox().role + state_->outgoing.role == sender + receiver || fail(same_role)) &&
               (mailbox().users == state_->outgoing.users || fail(unlike_users));
    }

    // The word of the peer that counts deliveries: increment it with the last write, or by confirm().
    uint32_t deliveries() const { return address(offsetof(State, deliveries)); }

    // Tell the peer that everything written to it is complete.
    template <typename Link>
    bool confirm(Link& link) {
        return link.increment(deliveries()) || fail(link_blocked);
    }

    bool await_delivery() {
        const uint32_t target = state_->expected + 1;
        state_->expected = target;
        const auto arrived = [this, target] { return bounded::reached(&state_->deliveries, target); };
        return bounded::wait(timeout_, arrived) || fail(delivery_absent);
    }

    // Tell the peer that its data are taken.
    template <typename Link>
    bool acknowledge(Link& link) {
        return link.increment(address(offsetof(State, acknowledgements))) || fail(link_blocked);
    }

    bool await_acknowledgement() {
        const uint32_t target = state_->awaited + 1;
        state_->awaited = target;
        const auto arrived = [this, target] { return bounded::reached(&state_->acknowledgements, target); };
        return bounded::wait(timeout_, arrived) || fail(unacknowledged);
    }

    bool fail(Status status) {
        state_->status = status;
        state_->status_call = state_->calls;
        return false;
    }

private:
    // Starts the next call with the first `bytes` of a message.
    template <typename Link>
    bool announce(Link& link, Role role, uint32_t users, uint32_t bytes) {
        const uint32_t call = state_->calls + 1;
        state_->calls = call;
        state_->outgoing.call = call;
        state_->outgoing.role = role;
        state_->outgoing.users = users;
        const uint32_t slot = offsetof(State, mailbox) + (call % 2) * sizeof(Message);
        const uint64_t to = link.core_address(address(slot));
        const bool sent =
            link.write(address(offsetof(State, outgoing)), to, bytes, address(offsetof(State, arrivals)));
        return sent || fail(link_blocked);
    }

    volatile tt_l1_ptr Message& mailbox() const { return state_->mailbox[state_->calls % 2]; }
    uint32_t address(uint32_t offset) const { return reinterpret_cast<uint32_t>(state_) + offset; }

    volatile tt_l1_ptr State* state_;
    uint64_t timeout_;
};

}  // namespace peer
