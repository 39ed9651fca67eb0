// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What a run depends on that only the device knows: the role of this rank and every user's cached tokens. A core's
// reader fetches it once and passes it to the core's other kernels in a page of words.

#pragma once

#include <cstdint>

#include "config.hpp"

namespace control {

constexpr uint32_t receiving = 0;     // word: 1 on the receiver of a pair, else 0
constexpr uint32_t alone = 1;         // word: 1 if the exchange before this call did not reach the peer
constexpr uint32_t first_tokens = 2;  // words: cached tokens of each user, 0 for one to skip
constexpr uint32_t first_listed =
    16;  // words: a byte per head of all users: listed tiles that its guess reads
constexpr uint32_t max_items = 64;
static_assert(first_tokens + config::max_users <= first_listed);
constexpr uint32_t page_bytes = first_listed * sizeof(uint32_t) + (config::followed ? max_items : 0);

// Where the listed tiles of an item are: the word, and by how much it is shifted.
inline uint32_t listed_word(uint32_t item) { return first_listed + item / 4; }
inline uint32_t listed_shift(uint32_t item) { return item % 4 * 8; }

// For data movement kernels.
inline uint32_t listed_of(const volatile uint32_t* words, uint32_t item) {
    return config::followed ? words[listed_word(item)] >> listed_shift(item) & 0xff : 0;
}

// What the guess of a head with `listed` tiles reads, these as some more of the first ones (tile_list.hpp).
inline attention::GuessRange guess_with(uint32_t listed) {
    attention::GuessRange guess = config::guess();
    guess.first += listed;
    return guess;
}

// The worker of a group that has the guess: the last, whose partial result, often the latest, is usually merged late.
inline uint32_t speculative_worker() { return config::speculate ? config::workers() - 1 : attention::nobody; }

// What `worker` of a group reads for such a head.
inline attention::Part part_of(uint32_t tokens, uint32_t listed, uint32_t worker) {
    return attention::part_of(tokens, guess_with(listed), worker, config::workers(), speculative_worker());
}

// Returns a bit for each user that is not skipped, from the page's words.
inline uint32_t active_users(const volatile uint32_t* words) {
    uint32_t found = 0;
    for (uint32_t user = 0; user < config::users(); ++user) {
        found |= (words[first_tokens + user] > 0 ? 1u : 0u) << user;
    }
    return found;
}

}  // namespace control
