// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What a run depends on that only the device knows: every user's prefix and, on a pair, the role of this rank; for data
// movement kernels. Each core fetches it to a page of words.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "jobs.hpp"
#include "tt_kernels/common/kernels/priority.hpp"

namespace control {

// The first words are the prefixes, jobs::skipped for a skipped user.
constexpr uint32_t receiving = config::max_users;  // word: 1 on the receiver of a pair, else 0
constexpr uint32_t alone = receiving + 1;  // word: 1 if the exchange before this call did not reach the peer
constexpr uint32_t words = alone + 1;
// Then lines of scratch (CONTROL_BYTES of work_split.py).
constexpr uint32_t first_line = priority::row_bytes, lines = 3;

// A bit for each user that is not skipped.
inline uint32_t active_users(const volatile tt_l1_ptr uint32_t* page) {
    uint32_t found = 0;
    for (uint32_t user = 0; user < config::users(); ++user) {
        found |= (page[user] == jobs::skipped ? 0u : 1u) << user;
    }
    return found;
}

}  // namespace control
