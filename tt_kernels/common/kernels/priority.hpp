// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Priorities in kernels; tt_kernels/common/priority.py is the host's side and says what the values mean.

#pragma once

#include <cstdint>

namespace priority {

constexpr uint32_t max_users = 32;
constexpr uint32_t row_bytes = max_users * sizeof(uint32_t);

constexpr uint32_t accepted = 0;
constexpr uint32_t received = 1;
constexpr uint32_t rejected = 2;
constexpr uint32_t bypassed = 3;

// A member's priority: the highest of its users'.
inline uint32_t highest(const volatile uint32_t* row, uint32_t users) {
    uint32_t found = 0;
    for (uint32_t user = 0; user < users; ++user) {
        const uint32_t value = row[user];
        found = value > found ? value : found;
    }
    return found;
}

}  // namespace priority
