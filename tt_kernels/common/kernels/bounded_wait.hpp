// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Waits that end. All waits for another chip, or for another group of cores, go through here.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace bounded {

// Returns a number of cycles from two runtime arguments, low word first (common/peer.py, timeout_words).
inline uint64_t cycles_arg(uint32_t index) {
    return get_arg_val<uint32_t>(index) | static_cast<uint64_t>(get_arg_val<uint32_t>(index + 1)) << 32;
}

// A point in time, in cycles of this core's clock.
class Deadline {
public:
    explicit Deadline(uint64_t cycles) : start_(get_timestamp()), cycles_(cycles) {}
    bool passed() const { return get_timestamp() - start_ >= cycles_; }

private:
    uint64_t start_;
    uint64_t cycles_;
};

// Polls `done` until it holds; returns false if `cycles` pass first.
template <typename Done>
inline bool wait(uint64_t cycles, Done done) {
    if (done()) {  // before the clock is read
        return true;
    }
    const Deadline deadline(cycles);
    while (!done()) {
        if (deadline.passed()) {
            return done();
        }
    }
    return true;
}

// Whether the counter in L1 has reached `target`. Counters only grow and may wrap.
inline bool reached(const volatile uint32_t* counter, uint32_t target) {
    return static_cast<int32_t>(*counter - target) >= 0;
}

}  // namespace bounded
