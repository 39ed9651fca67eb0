// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Keys or values of consecutive cached tokens from DRAM into a circular buffer; for readers.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "attention_config.hpp"
#include "chunk_split.hpp"
#include "dram_tiles.hpp"
#include "mass_columns.hpp"
#include "tile_masks.hpp"
#include "value_rows.hpp"

namespace cache_rows {

using config::head_tiles;
constexpr uint32_t ones = config::cb_ones, values = config::cb_values;
constexpr uint32_t rows_in_flight = 4;  // key tile rows read before their barrier

// Reads rows of head_tiles cache tiles, row r from page head.page(r) on (head_rows.hpp), each to the start of `stride`
// tiles of the buffer. A push is one row, which divides the buffer's size, so rows never wrap around; those in flight
// may be on both sides of its end. Of the last row only the first `visible` tokens are kept: what the cache holds after
// the position must not matter, and 0 times an infinity or NaN would.
template <uint32_t stride, typename Accessor, typename Rows>
inline void read(
    uint32_t cb, const Accessor& cache, const Rows& head, const attention::Range& rows, uint32_t visible) {
    const uint32_t tile_bytes = get_tile_size(cb);
    const uint32_t row_bytes = stride * tile_bytes;
    const bool beyond_middle = dram_tiles::beyond_middle();
    const uint32_t limit = get_local_cb_interface(cb).fifo_limit;
    for (uint32_t row = rows.begin; row < rows.end;) {
        const uint32_t batch = attention::min(rows_in_flight, rows.end - row);
        cb_reserve_back(cb, batch * stride);
        uint32_t to = get_write_ptr(cb), last = to;
        for (uint32_t i = 0; i < batch; ++i) {
            last = to;
            const uint32_t page = head.page(row + i);
            for (uint32_t tile = 0; tile < head_tiles; ++tile) {
                noc_async_read<NOC_MAX_BURST_SIZE>(
                    dram_tiles::address(cache.get_noc_addr(page + tile), beyond_middle),
                    to + tile * tile_bytes, tile_bytes);
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

// Reads as read() does and adds the rows that `chunk` lacks of config::key_tiles(), so that each chunk starts at the start
// of a half of the buffer.
template <uint32_t stride, typename Accessor, typename Rows>
inline void read_chunk(
    uint32_t cb, const Accessor& cache, const Rows& head, const attention::Range& chunk, uint32_t visible) {
    read<stride>(cb, cache, head, chunk, visible);
    if (const uint32_t rest = config::key_tiles() - chunk.size(); rest > 0) {
        cb_reserve_back(cb, rest * stride);
        cb_push_back(cb, rest * stride);
    }
}

// The caches of a head.
template <typename Accessor, typename Rows>
struct Source {
    const Accessor& keys;
    const Accessor& values;
    Rows head;        // in both
    uint32_t tokens;  // that the head attends to
};

// Reads chunks in the order in which they are needed: the keys of the next chunk before the values of this one.
template <typename Accessor, typename Rows>
class InTurn {
public:
    explicit InTurn(const Source<Accessor, Rows>& source) : source_(source) {}

    void read(const attention::Range& chunk) {
        read_chunk<head_tiles>(config::cb_keys, source_.keys, source_.head, chunk, visible_of(chunk));
        finish();
        last_ = chunk;
    }

    // Not inlined, as a kernel's code must stay small.
    __attribute__((noinline)) void finish() {
        if (last_.size() > 0) {
            read_chunk<value_rows::stride<head_tiles>>(
                config::cb_values, source_.values, source_.head, last_, visible_of(last_));
            last_ = {0, 0};
        }
    }

private:
    uint32_t visible_of(const attention::Range& chunk) const {
        return attention::ends_partly(chunk.end, source_.tokens)
                   ? attention::tokens_in_last_tile(source_.tokens)
                   : attention::tile_tokens;
    }

    const Source<Accessor, Rows> source_;
    attention::Range last_{0, 0};  // whose values have not been read
};

// For writers, once, before anything has been taken from `ones`: pushes the constant tile of a compute kernel and
// starts copying a tile of ones after each of the rows that the buffer of values holds. push_values_ones() waits
// for them.
inline void push_ones() {
    cb_reserve_back(ones, value_rows::pushes_of_ones<head_tiles>);
    uint32_t from = get_write_ptr(ones);
    tile_masks::ones(from);
    cb_push_back(ones, 1);
    if constexpr (value_rows::with_ones<head_tiles>) {
        const uint32_t tile_bytes = get_tile_size(values);
        uint32_t to = get_write_ptr(values) + head_tiles * tile_bytes;
        if (tile_bytes != tile_rows::tile_bytes) {
            tile_masks::block_float_ones(to);
            from = to;
        }
        for (uint32_t row = 0, rows = 2 * config::key_tiles(); row < rows; ++row) {
            if (to != from) {
                noc_async_read(get_noc_addr(from), to, tile_bytes);
            }
            to += value_rows::stride<head_tiles> * tile_bytes;
        }
    }
}

inline void push_values_ones() {
    if constexpr (value_rows::with_ones<head_tiles>) {
        noc_async_read_barrier();
        cb_push_back(ones, 1);
    }
}

// In place of both: the tiles of mass_columns.hpp instead of ones beside the values, or after the constant tile in
// `ones`, which then has a page for each key tile more.
inline __attribute__((always_inline)) void push_mass_columns() {  // smaller so
    const uint32_t key_tiles = config::key_tiles();
    tile_masks::ones(get_write_ptr(ones));
    cb_push_back(ones, 1);
    if constexpr (value_rows::with_ones<head_tiles>) {
        const uint32_t tile_bytes = get_tile_size(values);
        mass_columns::fill(
            get_write_ptr(values) + head_tiles * tile_bytes, value_rows::stride<head_tiles> * tile_bytes,
            2 * key_tiles, key_tiles, tile_bytes != tile_rows::tile_bytes);
        cb_push_back(ones, 1);
    } else {
        mass_columns::fill(get_write_ptr(ones), tile_rows::tile_bytes, key_tiles, key_tiles, false);
        cb_push_back(ones, key_tiles);
    }
}

}  // namespace cache_rows
