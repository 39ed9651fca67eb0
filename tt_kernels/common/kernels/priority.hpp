// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Priorities in kernels; tt_kernels/common/priority.py is the host side and says what the values mean.

#pragma once

#include <cstdint>

namespace priority {

constexpr uint32_t max_users = 32;
constexpr uint32_t row_bytes = max_users * sizeof(uint32_t);

constexpr uint32_t yielded = 0;
constexpr uint32_t holds_guess = 1;
constexpr uint32_t holds_exact = 2;
constexpr uint32_t holds_exact_unverified = 3;
// Among gathered priorities: those of a peer that the exchange did not reach. Higher than any priority.
constexpr uint32_t unknown = 0xFFFFFFFF;

// What the exchange core tells the core that decides.
constexpr uint32_t guess_delivered = 1;
constexpr uint32_t guess_undelivered = 2;

// A rank's priority: the highest of its users'. A skipped user counts with its entry.
inline uint32_t highest(const volatile uint32_t* row, uint32_t users) {
    uint32_t found = 0;
    for (uint32_t user = 0; user < users; ++user) {
        const uint32_t value = row[user];
        found = value > found ? value : found;
    }
    return found;
}

// Which rank sends, decided by these two functions alone, in the exchange and in the speculative attention (the
// reference is tt_kernels/common/reference.py): the rank with the higher priority, on a tie rank 0. On a tie of 0
// nobody holds the result; the exchange reports that. A rank whose peer is unknown goes on alone unless it knows that
// it holds nothing.
inline bool sends(uint32_t mine, uint32_t peers, uint32_t sp_rank) {
    return peers == unknown ? mine != yielded : mine > peers || (mine == peers && sp_rank == 0);
}
inline bool nobody_holds(uint32_t mine, uint32_t peers) { return mine == yielded && peers == yielded; }

}  // namespace priority
