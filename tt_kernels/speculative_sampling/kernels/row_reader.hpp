// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Rows of logits into L1, id by id, whatever their layout in DRAM.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace row_reader {

constexpr uint16_t minus_infinity = 0xFF80;
constexpr uint32_t tile_side = 32;

// Starts to read the row of `node` of `user`, [users, nodes, vocab]; noc_async_read_barrier() ends it.
template <typename Accessor>
inline void start(
    const Accessor& logits, uint32_t user, uint32_t node, uint32_t nodes, uint32_t vocab, uint32_t to) {
    if constexpr (config::tiled) {
        const uint32_t across = (vocab + tile_side - 1) / tile_side;
        const uint32_t half = tile_rows::face_rows * tile_rows::row_bytes;
        const uint32_t face = node / tile_rows::face_rows * tile_rows::faces_across;
        const uint32_t offset = face * half + node % tile_rows::face_rows * tile_rows::row_bytes;
        for (uint32_t column = 0; column < across; ++column) {
            const uint64_t from = logits.get_noc_addr(user * across + column) + offset;
            noc_async_read(from, to, tile_rows::row_bytes);
            noc_async_read(from + half, to + tile_rows::row_bytes, tile_rows::row_bytes);
            to += 2 * tile_rows::row_bytes;
        }
    } else {
        const uint64_t from = logits.get_noc_addr(user * nodes + node);
        const uint32_t bytes = vocab * config::logit_bytes;
        for (uint32_t done = 0; done < bytes; done += config::row_tile_bytes) {
            const uint32_t left = bytes - done;
            noc_async_read(
                from + done, to + done, left < config::row_tile_bytes ? left : config::row_tile_bytes);
        }
    }
}

constexpr uint32_t step = 64;  // ids of two vectors

// Ids from `vocab` to the end of what the calculator looks at get no weight.
inline void fill(uint32_t row, uint32_t vocab) {
    volatile tt_l1_ptr uint16_t* logits = reinterpret_cast<volatile tt_l1_ptr uint16_t*>(row);
    uint32_t id = vocab;
    for (; id % step != 0 && id % 2 != 0; ++id) {
        logits[id] = minus_infinity;
    }
    volatile tt_l1_ptr uint32_t* pairs = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(row);
    for (; id % step != 0; id += 2) {
        pairs[id / 2] = static_cast<uint32_t>(minus_infinity) << 16 | minus_infinity;
    }
}

}  // namespace row_reader
