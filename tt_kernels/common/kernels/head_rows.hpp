// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Where a head's rows of tiles are in a KV cache: one after another, or in blocks that a page table names. Both caches
// are [users or blocks, kv_heads, tokens, head_dim].

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace head_rows {

// A head of one user. The words of its row of the page table must have arrived at `blocks` before page() is called.
template <uint32_t head_tiles, bool paged>
struct Rows;

template <uint32_t head_tiles>
struct Rows<head_tiles, false> {
    uint32_t first;  // page of the tensor

    // The first page of the row of tiles that holds tokens 32 * row to 32 * row + 31.
    uint32_t page(uint32_t row) const { return first + row * head_tiles; }
};

template <uint32_t head_tiles>
struct Rows<head_tiles, true> {
    const volatile tt_l1_ptr uint32_t* blocks;
    uint32_t head;
    uint32_t kv_heads;
    uint32_t shift;  // a block has 1 << shift rows of tiles

    uint32_t page(uint32_t row) const {
        const uint32_t block = blocks[row >> shift];
        const uint32_t in_block = row & ((1u << shift) - 1);
        return (((block * kv_heads + head) << shift) + in_block) * head_tiles;
    }
};

// The shapes of a cache that differ between both kinds. shift: see Rows; 0 without pages.
struct Shape {
    uint32_t kv_heads;
    uint32_t tiles;  // rows of tiles that a user's head can have
    uint32_t shift;
};

template <uint32_t head_tiles, bool paged>
inline Rows<head_tiles, paged> of(
    const Shape& shape, uint32_t user, uint32_t head, [[maybe_unused]] uint32_t blocks) {
    if constexpr (paged) {
        return {
            reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(blocks), head, shape.kv_heads, shape.shift};
    } else {
        return {(user * shape.kv_heads + head) * shape.tiles * head_tiles};
    }
}

// Starts to read what `tokens` tokens of a user need of its row of the page table to `to`.
template <typename Accessor>
inline void fetch(const Accessor& table, const Shape& shape, uint32_t user, uint32_t tokens, uint32_t to) {
    constexpr uint32_t line = 32, tile_shift = 5;  // bytes that DRAM is read by; tokens of a tile
    const uint32_t block_shift = tile_shift + shape.shift;
    const uint32_t bytes = ((tokens + (1u << block_shift) - 1) >> block_shift) * sizeof(uint32_t);
    noc_async_read(table.get_noc_addr(user), to, (bytes + line - 1) / line * line);
}

}  // namespace head_rows
