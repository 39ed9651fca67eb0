// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Keys or values of consecutive cached tokens from DRAM into a circular buffer; for readers.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "chunk_split.hpp"
#include "tile_masks.hpp"
#include "value_rows.hpp"

namespace cache_rows {

constexpr uint32_t rows_in_flight = 4;  // key tile rows read before their barrier

// Rows of head_tiles cache tiles, row r from tile base + r * head_tiles, each at the start of `stride` tiles of the
// buffer. A push is one row, which divides the buffer's size, so rows never wrap around; those in flight may lie on both sides of its end. Of the last row only the
// first `visible` tokens are kept: what the cache holds behind the position must not matter, infinite or not a number,
// and 0 times that would.
template <uint32_t head_tiles, uint32_t stride, typename Accessor>
inline void read(
    uint32_t cb, const Accessor& cache, uint32_t base, const attention::Range& rows, uint32_t visible) {
    const uint32_t tile_bytes = get_tile_size(cb);
    const uint32_t row_bytes = stride * tile_bytes;
    const uint32_t limit = get_local_cb_interface(cb).fifo_limit;
    for (uint32_t row = rows.begin; row < rows.end;) {
        const uint32_t batch = attention::least(rows_in_flight, rows.end - row);
        cb_reserve_back(cb, batch * stride);
        uint32_t to = get_write_ptr(cb), last = to;
        for (uint32_t i = 0; i < batch; ++i) {
            last = to;
            for (uint32_t tile = 0; tile < head_tiles; ++tile) {
                noc_async_read_page(base + (row + i) * head_tiles + tile, cache, to + tile * tile_bytes);
            }
            to += row_bytes;
            if (to >= limit) {
                to -= get_local_cb_interface(cb).fifo_size;
            }
        }
        noc_async_read_barrier();
        row += batch;
        if (visible < attention::tile_tokens && row == rows.end) {
            for (uint32_t tile = 0; tile < head_tiles; ++tile) {
                tile_masks::clear_rows_from(
                    last + tile * tile_bytes, visible, tile_bytes != tile_rows::tile_bytes);
            }
            noc_async_read_barrier();
        }
        for (uint32_t i = 0; i < batch; ++i) {
            cb_push_back(cb, stride);
        }
    }
}

// As read(), and as many empty rows as `chunk` lacks of `capacity`: so each chunk starts where a buffer of two chunks has
// one.
template <uint32_t head_tiles, uint32_t stride, typename Accessor>
inline void read_chunk(
    uint32_t cb,
    const Accessor& cache,
    uint32_t base,
    const attention::Range& chunk,
    uint32_t visible,
    uint32_t capacity) {
    read<head_tiles, stride>(cb, cache, base, chunk, visible);
    if (const uint32_t rest = capacity - chunk.size(); rest > 0) {
        cb_reserve_back(cb, rest * stride);
        cb_push_back(cb, rest * stride);
    }
}

// For writers, once, before anything has been taken from `ones`: the constant tiles of a compute kernel, and those of
// the values' rows, of which the buffer holds `rows`.
template <uint32_t head_tiles>
inline void push_ones(uint32_t ones, uint32_t values, uint32_t rows) {
    cb_reserve_back(ones, value_rows::pushes_of_ones<head_tiles>);
    tile_masks::ones(get_write_ptr(ones));
    cb_push_back(ones, 1);
    if constexpr (value_rows::with_ones<head_tiles>) {
        const uint32_t tile_bytes = get_tile_size(values);
        const uint32_t first = get_write_ptr(values) + head_tiles * tile_bytes;
        if (tile_bytes == tile_rows::tile_bytes) {
            tile_masks::ones(first);
        } else {
            tile_masks::block_float_ones(first);
        }
        for (uint32_t row = 1; row < rows; ++row) {
            noc_async_read(
                get_noc_addr(first), first + row * value_rows::stride<head_tiles> * tile_bytes, tile_bytes);
        }
        noc_async_read_barrier();
        cb_push_back(ones, 1);
    }
}

}  // namespace cache_rows
