// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The bitmaps of chosen_tiles.hpp of the jobs that a core does in turn, in cb_chosen; for data movement kernels. A job is a
// key/value head of a user, or one of `passes` of it.

#pragma once

#include <cstdint>

#include "attention_config.hpp"
#include "chosen_tiles.hpp"
#include "chunk_split.hpp"

namespace chosen_heads {

// The bits of the group's job number `round`: twice so many words (chosen_tiles.hpp).
inline uint32_t words_of_head() { return chosen_tiles::words_of(config::cache_tiles()); }
inline volatile tt_l1_ptr uint32_t* words_of(uint32_t round) {
    return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_write_ptr(config::cb_chosen)) +
           round * 2 * words_of_head();
}

// Starts to read the bits of the jobs group, group + groups, ... of all users' heads.
template <typename Accessor>
inline void fetch(const Accessor& chosen, uint32_t group, uint32_t groups, uint32_t passes) {
    uint32_t round = 0;
    for (uint32_t job = group; job < config::users() * config::kv_heads() * passes; job += groups) {
        noc_async_read(
            chosen.get_noc_addr(job / passes), reinterpret_cast<uint32_t>(words_of(round++)),
            words_of_head() * sizeof(uint32_t));
    }
}

// Once they are there: keeps those between the two `ends`, which are without the chosen tiles. Returns how many there are.
inline uint32_t keep([[maybe_unused]] const attention::Ends& ends, [[maybe_unused]] uint32_t round) {
    if constexpr (config::with_chosen) {
        return chosen_tiles::keep(words_of(round), words_of_head(), ends.first_end, ends.last_begin);
    } else {
        return 0;
    }
}

// The order in which the rows of its cache are numbered. ends: as above; chosen: how many there are.
struct InPlace {
    uint32_t tile(uint32_t row) const { return row; }
};
inline auto order_of(
    [[maybe_unused]] const attention::Ends& ends,
    [[maybe_unused]] uint32_t chosen,
    [[maybe_unused]] uint32_t round) {
    if constexpr (config::with_chosen) {
        return chosen_tiles::Order(words_of(round), words_of_head(), ends.first_end, ends.last_begin, chosen);
    } else {
        return InPlace{};
    }
}

}  // namespace chosen_heads
