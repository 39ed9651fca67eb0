// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The calls of an all-reduce between the chips of a TP group, for the link core.
//
// In call n (each chip counts for itself) a chip writes its rows into slot n % 2 of every worker's landing buffer on all
// other chips, and increments its counter there. A chip cannot leave call n before the rows of all others are there,
// which they send after they have left call n - 1: two slots suffice. Counters only grow: nothing is reset between
// calls, in eager mode or in a trace. A wait that ends without a chip is recorded, and every later call returns at once.

#pragma once

#include <cstdint>

#include "tt_kernels/common/kernels/bounded_wait.hpp"
#include "tt_kernels/common/kernels/tp_session.hpp"

namespace all_reduce {

// tt_kernels/all_reduce/op.py reads the state on the host and must agree on these.
enum Status : uint32_t {
    fine = 0,
    rows_absent = 1,   // of the chip in `silent`
    link_blocked = 2,  // the fabric took no packet
    out_of_step = 3,   // the chip in `silent` is in another call
};

struct State {
    uint32_t arrivals[tp::max_chips];  // incremented by each chip of the group
    uint32_t calls;
    uint32_t status;
    uint32_t status_call;
    uint32_t silent;
    uint32_t padding[4];
};
static_assert(sizeof(State) == 64 && offsetof(State, status) == 9 * 4);

class Session {
public:
    // state: its L1 address, the same on all chips. self: this chip's index among the `chips` of its group.
    Session(uint32_t state, uint32_t self, uint32_t chips, uint64_t timeout) :
        state_(reinterpret_cast<volatile tt_l1_ptr State*>(state)),
        self_(self),
        chips_(chips),
        timeout_(timeout) {}

    bool usable() const { return state_->status == fine; }

    // Starts the next call; returns the slot that its rows go to.
    uint32_t begin() {
        state_->calls = state_->calls + 1;
        return state_->calls % 2;
    }

    // The counter of this chip on the others, incremented once everything of a call has been written to them.
    uint32_t arrival() const {
        return reinterpret_cast<uint32_t>(state_) + offsetof(State, arrivals) + self_ * sizeof(uint32_t);
    }

    bool blocked() { return fail(link_blocked, self_); }

    // Waits for the rows of all other chips.
    bool await_all() {
        const uint32_t call = state_->calls;
        for (uint32_t chip = 0; chip < chips_; ++chip) {
            if (chip == self_) {
                continue;
            }
            const auto arrived = [&] { return bounded::reached(&state_->arrivals[chip], call); };
            if (!bounded::wait(timeout_, arrived)) {
                return fail(rows_absent, chip);
            }
            // A chip is at most one call ahead.
            if (state_->arrivals[chip] - call > 1) {
                return fail(out_of_step, chip);
            }
        }
        return true;
    }

private:
    bool fail(Status status, uint32_t chip) {
        state_->status = status;
        state_->status_call = state_->calls;
        state_->silent = chip;
        return false;
    }

    volatile tt_l1_ptr State* state_;
    uint32_t self_, chips_;
    uint64_t timeout_;
};

}  // namespace all_reduce
