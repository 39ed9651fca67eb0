// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// How a data movement kernel makes the page of attention_control.hpp. Positions are int32 [users], those of each user's
// first query; gathered priorities are those of both ranks, page r those of rank r (priority.hpp).

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "attention_control.hpp"
#include "pair_role.hpp"
#include "priority.hpp"

namespace control {

// Each source lands in its own line of cb_scratch.
constexpr uint32_t line_bytes = priority::row_bytes;

// Writes the page at `page`. Positions past the cache count as its last one. meanwhile(): runs while they are on their way.
template <typename Meanwhile>
inline void fetch(uint32_t page, Meanwhile meanwhile) {
    const uint32_t scratch = get_write_ptr(config::cb_scratch);
    const auto positions = TensorAccessor(ACCESSOR_ARGS(positions), RUNTIME_ARG(positions));
    noc_async_read(positions.get_noc_addr(0), scratch, config::users() * sizeof(uint32_t));
    if constexpr (config::has_peer) {
        const auto gathered = TensorAccessor(ACCESSOR_ARGS(gathered), RUNTIME_ARG(gathered_priorities));
        pair_role::fetch(gathered, RUNTIME_ARG(sp_rank), scratch + line_bytes);
    }
    meanwhile();
    noc_async_read_barrier();

    volatile tt_l1_ptr uint32_t* words = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(page);
    const volatile tt_l1_ptr int32_t* position = reinterpret_cast<const volatile tt_l1_ptr int32_t*>(scratch);
    const int32_t last = config::cache_tiles() * 32 - 1;
    for (uint32_t user = 0; user < config::users(); ++user) {
        const int32_t at = position[user] < last ? position[user] : last;
        words[first_tokens + user] = at < 0 ? 0 : at + 1;
    }
    words[receiving] = 0;
    words[alone] = 0;
    if constexpr (config::has_peer) {
        const pair_role::Role role =
            pair_role::of(scratch + line_bytes, RUNTIME_ARG(sp_rank), config::users());
        words[receiving] = role.receiving;
        words[alone] = role.alone;
    }
}

// Fetches the page and passes one copy to compute (cb_control) and one to the writer (cb_control_writer). It stays
// readable at the start of cb_control, to which nothing else is pushed.
template <typename Meanwhile>
inline void share(Meanwhile meanwhile) {
    cb_reserve_back(config::cb_control, 1);
    cb_reserve_back(config::cb_control_writer, 1);
    const uint32_t page = get_write_ptr(config::cb_control);
    fetch(page, meanwhile);
    const volatile tt_l1_ptr uint32_t* words = reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(page);
    volatile tt_l1_ptr uint32_t* copy =
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_write_ptr(config::cb_control_writer));
    for (uint32_t i = 0; i < words_end; ++i) {
        copy[i] = words[i];
    }
    cb_push_back(config::cb_control, 1);
    cb_push_back(config::cb_control_writer, 1);
}

inline void fetch(uint32_t page) {
    fetch(page, [] {});
}
inline void share() {
    share([] {});
}

}  // namespace control
