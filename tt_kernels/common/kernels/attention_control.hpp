// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What a run depends on that only the device knows: the role of this rank and every user's cached tokens. A core fetches
// it once (fetch_control.hpp) to a page of words, which all of its kernels read.

#pragma once

#include <cstdint>

#include "attention_config.hpp"

namespace control {

constexpr uint32_t receiving = 0;     // word: 1 on the receiver of a pair, else 0
constexpr uint32_t alone = 1;         // word: 1 if the exchange before this call did not reach the peer
constexpr uint32_t first_tokens = 2;  // words: cached tokens of each user's first query, 0 for one to skip
constexpr uint32_t words_end = first_tokens + config::max_users;

// Returns a bit for each user that is not skipped, from the page's words.
inline uint32_t active_users(const volatile uint32_t* words) {
    uint32_t found = 0;
    for (uint32_t user = 0; user < config::users(); ++user) {
        found |= (words[first_tokens + user] > 0 ? 1u : 0u) << user;
    }
    return found;
}

}  // namespace control
