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

#include "tt_kernels/common/kernels/tp_session.hpp"

namespace all_reduce {

// tt_kernels/all_reduce/op.py must agree on these.
enum Status : uint32_t {
    rows_absent = 1,   // of the chip in `silent`
    link_blocked = 2,  // the fabric took no packet
    out_of_step = 3,   // the chip in `silent` is in another call
};

// Its state is tp::Calls alone.
class Session : public tp::Group {
public:
    using tp::Group::Group;

    // Starts the next call; returns the slot that its rows go to.
    uint32_t begin() { return next_call() % 2; }

    bool blocked() { return fail(link_blocked, self_); }

    bool has_rows(uint32_t chip) const { return bounded::reached(&calls_->arrivals[chip], calls_->calls); }

    // Waits for that chip's rows.
    bool await_rows(uint32_t chip) {
        // A chip is at most one call ahead.
        return await(chip, rows_absent) &&
               (calls_->arrivals[chip] - calls_->calls <= 1 || fail(out_of_step, chip));
    }
};

}  // namespace all_reduce
