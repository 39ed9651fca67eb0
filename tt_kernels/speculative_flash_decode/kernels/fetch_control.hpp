// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The reader's side of control.hpp. Positions are int32 [users]; priorities are those of priority.hpp.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "control.hpp"
#include "tt_kernels/common/kernels/pair_role.hpp"
#include "tt_kernels/common/kernels/priority.hpp"

namespace control {

struct Sources {
    uint32_t positions;
    uint32_t gathered;  // both ranks' priorities, page r those of rank r
    uint32_t sp_rank;   // this chip's
};

// Each source lands in its own line of cb_scratch.
constexpr uint32_t line_bytes = priority::row_bytes;

// Writes the page at `page`. Positions past the cache count as its last one.
template <typename PositionsArgs, typename GatheredArgs>
inline void fetch(
    const Sources& from,
    uint32_t page,
    const PositionsArgs& positions_args,
    const GatheredArgs& gathered_args) {
    const uint32_t scratch = get_write_ptr(config::cb_scratch);
    const auto positions = TensorAccessor(positions_args, from.positions);
    noc_async_read(positions.get_noc_addr(0), scratch, config::users() * sizeof(uint32_t));
    if constexpr (config::has_peer) {
        const auto gathered = TensorAccessor(gathered_args, from.gathered);
        pair_role::fetch(gathered, from.sp_rank, scratch + line_bytes);
    }
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
        const pair_role::Role role = pair_role::of(scratch + line_bytes, from.sp_rank, config::users());
        words[receiving] = role.receiving;
        words[alone] = role.alone;
    }
}

// Fetches the page and passes one copy to compute (cb_control) and one to the writer (cb_control_writer). It stays
// readable at the start of cb_control, to which nothing else is pushed. add(words) may add to it before, and returns how
// many words the page has.
template <typename PositionsArgs, typename GatheredArgs, typename Add>
inline void share(
    const Sources& from,
    const PositionsArgs& positions_args,
    const GatheredArgs& gathered_args,
    const Add& add) {
    cb_reserve_back(config::cb_control, 1);
    cb_reserve_back(config::cb_control_writer, 1);
    const uint32_t page = get_write_ptr(config::cb_control);
    fetch(from, page, positions_args, gathered_args);
    volatile tt_l1_ptr uint32_t* words = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(page);
    const uint32_t count = add(words);
    volatile tt_l1_ptr uint32_t* copy =
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_write_ptr(config::cb_control_writer));
    for (uint32_t i = 0; i < count; ++i) {
        copy[i] = words[i];
    }
    cb_push_back(config::cb_control, 1);
    cb_push_back(config::cb_control_writer, 1);
}

// The sources as the host gave them to this kernel.
inline Sources sources_args() {
    return {RUNTIME_ARG(positions), RUNTIME_ARG(gathered_priorities), RUNTIME_ARG(sp_rank)};
}

}  // namespace control
