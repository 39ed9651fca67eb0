// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Whether a user's guess is accepted, and who then holds its layer (ALSpec paper, section 3.2); for data movement
// kernels. Numbers are the bits of float32.

#pragma once

#include <cstdint>

#include "priority.hpp"

namespace guess_decision {

// The elements of the tile that guess_distance::measure() makes: column 0 of row 0, columns 0 and 1 of row 1.
constexpr uint32_t distance_element = 0;
constexpr uint32_t norm_element = 16;
constexpr uint32_t bound_element = 17;  // norm * threshold^2

constexpr uint32_t infinity = 0x7F800000;

// ||guess - exact|| < threshold * ||exact||, squared. Squares are not negative, so their bits have the same order; a NaN
// or an infinity is never accepted.
inline bool passes(uint32_t distance_sq, uint32_t bound) { return bound < infinity && distance_sq < bound; }

// The priority of a user of the sender. given_away: the guess was accepted, and its receiver has it.
inline uint32_t priority_of(bool skipped, bool bypassed, bool given_away) {
    if (skipped) {
        return priority::yielded;  // a skipped user keeps no rank at work
    }
    if (bypassed) {
        return priority::holds_exact_unverified;
    }
    return given_away ? priority::yielded : priority::holds_exact;
}

}  // namespace guess_decision
