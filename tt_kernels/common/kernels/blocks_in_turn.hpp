// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads equal blocks into a circular buffer of `slots` of them: the next block is on its way while the one before arrives.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace blocks_in_turn {

// request(block, to): starts to read a block of `tiles` tiles to an address.
template <uint32_t cb, uint32_t blocks, uint32_t tiles, uint32_t slots, typename Request>
inline __attribute__((always_inline)) void read(const Request& request) {
    constexpr uint32_t ids = 2;  // of transactions: blocks on their way
    constexpr uint32_t bytes = tiles * get_tile_size(cb);
    const uint32_t buffer = get_write_ptr(cb);
    for (uint32_t block = 0, slot = 0; block < blocks; ++block, slot = slot + 1 == slots ? 0 : slot + 1) {
        cb_reserve_back(cb, (block == 0 ? 1 : 2) * tiles);
        noc_async_read_set_trid(1 + block % ids);
        request(block, buffer + slot * bytes);
        if (block > 0) {
            noc_async_read_barrier_with_trid(1 + (block - 1) % ids);
            cb_push_back(cb, tiles);
        }
    }
    noc_async_read_barrier_with_trid(1 + (blocks - 1) % ids);
    cb_push_back(cb, tiles);
    noc_async_read_set_trid(0);
}

}  // namespace blocks_in_turn
