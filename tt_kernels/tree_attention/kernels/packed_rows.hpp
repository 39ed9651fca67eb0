// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// From rows of a tensor [1, heads, trees * nodes, head_dim] to the rows of a job's query tiles, and back. Both are
// tiled, so a row is two pieces of 32 bytes in each of head_tiles tiles; rows that are adjacent on both sides within a
// face are one piece.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "jobs.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace packed_rows {

// Tiles of rows of a head in the tensor.
inline uint32_t tensor_tiles() { return jobs::tiles_of(config::trees() * config::nodes()); }

// The page of tile `column` of the rows of `head` from `row` on.
inline uint32_t page_of(uint32_t head, uint32_t row, uint32_t column) {
    return (head * tensor_tiles() + row / 32) * config::head_tiles + column;
}

using tile_rows::left_in_face, tile_rows::offset_of;

// Calls visit(page, page_offset, column, tile_offset, bytes) for each piece of the rows of query tile `tile` of `job`:
// where it lies in the tensor, and in the tile's `column` of head_tiles.
template <typename Visit>
inline void for_each_piece(const jobs::Job& job, uint32_t tile, Visit visit) {
    const uint32_t rows = job.rows_of(tile);
    uint32_t head = (job.first_row + tile * 32) / config::nodes();
    uint32_t node = job.first_row + tile * 32 - head * config::nodes();
    if constexpr (config::prefills) {  // whole tiles on both sides
        for (uint32_t column = 0; column < config::head_tiles; ++column) {
            visit(
                page_of(
                    job.kv_head * config::group_heads() + head, job.tree * config::nodes() + node, column),
                0, column, 0, tile_rows::tile_bytes);
        }
        return;
    }
    for (uint32_t row = 0; row < rows;) {
        const uint32_t from = job.tree * config::nodes() + node;
        uint32_t run = attention::min(rows - row, config::nodes() - node);
        run = attention::min(run, attention::min(left_in_face(row), left_in_face(from)));
        for (uint32_t column = 0; column < config::head_tiles; ++column) {
            const uint32_t page = page_of(job.kv_head * config::group_heads() + head, from, column);
            for (uint32_t face = 0; face < tile_rows::faces_across; ++face) {
                visit(
                    page, offset_of(from) + face * tile_rows::face_bytes, column,
                    offset_of(row) + face * tile_rows::face_bytes, run * tile_rows::row_bytes);
            }
        }
        row += run;
        node += run;
        if (node == config::nodes()) {
            node = 0;
            ++head;
        }
    }
}

// What move() does with the rows of a query tile: `to_tensor` and `from_tensor` copy them, between the tensor and the
// tiles at `address`; `zeros` writes zeros to the tensor.
enum class Move { to_tensor, from_tensor, zeros };

// Starts to move the rows of query tile `tile` of `job`. One function for all, as a kernel's code must stay small.
template <typename Accessor>
__attribute__((noinline)) void move(
    Move what, const Accessor& tensor, const jobs::Job& job, uint32_t tile, uint32_t address) {
    for_each_piece(
        job, tile,
        [&](uint32_t page, uint32_t page_offset, uint32_t column, uint32_t offset, uint32_t bytes) {
            const uint64_t there = tensor.get_noc_addr(page, page_offset);
            const uint32_t here = address + column * tile_rows::tile_bytes + offset;
            if (what == Move::from_tensor) {
                noc_async_read(there, here, bytes);
            } else {
                noc_async_write<config::prefills ? tile_rows::tile_bytes : tile_rows::face_bytes>(
                    what == Move::zeros ? MEM_ZEROS_BASE : here, there, bytes);
            }
        });
}

}  // namespace packed_rows
