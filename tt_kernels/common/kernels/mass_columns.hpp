// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The softmax mass of each key tile, from the multiplication that makes the row sums. In place of a tile of ones, the
// weights of the chunk's key tile i are multiplied with a tile that has ones in the even columns of its left faces, which
// add up to the row sum, and in column(i), which no other key tile of the chunk has. So the row sums' tile also holds, for
// each row, the sum of the weights of each key tile. These columns are handed out with the row maxima that the weights are
// relative to, and cleared before the state goes on.

#pragma once

#include <cstdint>

#if !defined(COMPILE_FOR_TRISC)
#include "api/dataflow/dataflow_api.h"
#include "tile_masks.hpp"
#endif
#include "tile_rows.hpp"

namespace mass_columns {

constexpr uint32_t none = ~0u;      // in place of a circular buffer: nothing is handed out
constexpr uint32_t max_tiles = 24;  // of a chunk: the columns of a tile without the row sum's 8

// Columns 1, 3, ... 15, then 16 to 31.
constexpr uint32_t in_left_face = 8;
constexpr uint32_t column(uint32_t index) {
    return index < in_left_face ? 2 * index + 1 : in_left_face + index;
}

// Rows of a tile of queries whose masses count: `count` of them from `first` on, each `step` after the one before.
struct Rows {
    uint32_t first, count, step;

    uint32_t at(uint32_t index) const { return first + index * step; }
    uint32_t end() const { return at(count - 1) + 1; }
};

// A page that is handed out: the float32 tile of row sums, then a word for each of its Rows with the row maximum,
// bfloat16.
constexpr uint32_t tile_bytes = 2 * tile_rows::tile_bytes;
constexpr uint32_t max_rows = 32;

// The bytes from the start of a float32 tile to the first element of a row in the left face. The right face's is
// right_face further.
constexpr uint32_t row_offset(uint32_t row) {
    return 2 * (row / tile_rows::face_rows * tile_rows::faces_across * tile_rows::face_bytes +
                row % tile_rows::face_rows * tile_rows::row_bytes);
}
constexpr uint32_t right_face = 2 * tile_rows::face_bytes;

// The bytes from there to its element of key tile `index`.
inline uint32_t column_offset(uint32_t index) {
    const uint32_t at = column(index);
    return at < tile_rows::face_rows ? at * sizeof(uint32_t)
                                     : (at - tile_rows::face_rows) * sizeof(uint32_t) + right_face;
}

#if !defined(COMPILE_FOR_TRISC)

// Writes `count` tiles of ones in the columns of row sums and of key tile i % key_tiles, the i-th at `to` + i * step, in
// bfloat16 or bfloat8_b.
inline void fill(uint32_t to, uint32_t step, uint32_t count, uint32_t key_tiles, bool block_float) {
    const uint32_t row_bytes = block_float ? tile_rows::row_bytes / 2 : tile_rows::row_bytes;
    const uint32_t face_bytes = row_bytes * tile_rows::face_rows, element_bytes = block_float ? 1 : 2;
    const uint32_t exponents = block_float ? tile_masks::block_float_exponents : 0;
    const uint32_t one = block_float ? 0x40 : tile_masks::one;
    const uint32_t even_ones = block_float ? one << 16 | one : one;
    const auto copy = [](uint32_t from, uint32_t at, uint32_t bytes) {
        noc_async_read(get_noc_addr(from), at, bytes);
    };
    const auto last_word = [](uint32_t end) {  // read back: all words before it have reached L1
        (void)*reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(end - sizeof(uint32_t));
    };
    tile_masks::fill(to, exponents, 0x7F7F7F7F);
    tile_masks::clear(to + exponents + face_bytes, face_bytes);
    tile_masks::fill(to + exponents, face_bytes, even_ones);
    last_word(to + exponents + face_bytes);
    noc_async_read_barrier();
    copy(to + exponents, to + exponents + 2 * face_bytes, 2 * face_bytes);
    noc_async_read_barrier();
    for (uint32_t i = 1; i < count; ++i) {
        copy(to, to + i * step, exponents + 4 * face_bytes);
    }
    noc_async_read_barrier();
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t at = column(i % key_tiles), face = at / tile_rows::face_rows;
        const uint32_t byte = at % tile_rows::face_rows * element_bytes;
        const uint32_t word = (face == 0 ? even_ones : 0) | one << 8 * (byte % sizeof(uint32_t));
        uint32_t address =
            to + i * step + exponents + face * face_bytes + byte / sizeof(uint32_t) * sizeof(uint32_t);
        for (uint32_t half = 0; half < 2; ++half) {
            for (uint32_t row = 0; row < tile_rows::face_rows; ++row) {
                *reinterpret_cast<volatile tt_l1_ptr uint32_t*>(address + row * row_bytes) = word;
            }
            address += 2 * face_bytes;
        }
        last_word(address - 2 * face_bytes + (tile_rows::face_rows - 1) * row_bytes + sizeof(uint32_t));
    }
}

#endif

}  // namespace mass_columns
