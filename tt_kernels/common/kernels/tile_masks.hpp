// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Constant tiles that a data movement kernel writes into its own L1 for the compute kernel; bfloat16, except one.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tile_rows.hpp"

namespace tile_masks {

constexpr uint16_t one = 0x3F80;
// The score of a hidden key: added to its score of 0, since its row of the cache tile is cleared. Its exp() is 0 at any
// scale in use, and it is far from overflow.
constexpr uint16_t hidden = 0xCE6E;  // -998244352

// Bytes of exponents at the start of a bfloat8_b tile, one for each row of each face; one byte per element follows.
constexpr uint32_t block_float_exponents = tile_rows::tile_bytes / tile_rows::row_bytes;

inline void fill(uint32_t address, uint32_t bytes, uint32_t word) {
    volatile tt_l1_ptr uint32_t* words = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(address);
#pragma GCC unroll 8
    for (uint32_t i = 0; i < bytes / sizeof(uint32_t); ++i) {
        words[i] = word;
    }
}

// Starts writing zeros to this core's L1 over the NoC; they are there after the barrier of reads.
inline void clear(uint32_t address, uint32_t bytes) {
    const uint64_t zeros = get_noc_addr(MEM_ZEROS_BASE);
    while (bytes > 0) {
        const uint32_t part = bytes < MEM_ZEROS_SIZE ? bytes : MEM_ZEROS_SIZE;
        noc_async_read(zeros, address, part);
        address += part;
        bytes -= part;
    }
}

// Writes an eighth of a tile's elements; the NoC copies the rest from there.
inline void fill_elements(uint32_t address, uint32_t bytes, uint32_t word) {
    const uint32_t part = bytes / 8;
    fill(address, part, word);
    // A value that was read back has reached L1; a store alone may not have when the NoC starts reading.
    (void)*reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(address + part - sizeof(uint32_t));
    for (uint32_t offset = part; offset < bytes; offset += part) {
        noc_async_read(get_noc_addr(address), address + offset, part);
    }
    noc_async_read_barrier();
}

// A tile of ones, bfloat16.
inline void ones(uint32_t address) { fill_elements(address, tile_rows::tile_bytes, one << 16 | one); }

// The same, bfloat8_b: a byte of exponent for each row of each face, then a byte for each element.
inline void block_float_ones(uint32_t address) {
    constexpr uint32_t exponents = 0x7F7F7F7F, elements = 0x40404040;
    fill(address, block_float_exponents, exponents);
    fill_elements(address + block_float_exponents, tile_rows::tile_bytes / 2, elements);
}

// Starts clearing rows [begin, 32) of a tile in L1, bfloat16 or bfloat8_b; they are zeros after the barrier of reads.
inline void clear_rows_from(uint32_t tile, uint32_t begin, bool block_float) {
    tile_rows::for_each_piece(begin, 32, [&](uint32_t offset, uint32_t bytes) {
        if (!block_float) {
            clear(tile + offset, bytes);
            return;
        }
        clear(tile + block_float_exponents + offset / 2, bytes / 2);
        volatile tt_l1_ptr uint8_t* exponents = reinterpret_cast<volatile tt_l1_ptr uint8_t*>(tile);
        for (uint32_t row = 0; row < bytes / tile_rows::row_bytes; ++row) {
            exponents[offset / tile_rows::row_bytes + row] = 0;
        }
    });
}

// Sets column 0 of a tile to 0 for the first `visible` keys and to `hidden` for the rest; the other columns must be 0.
// Then scores + ones @ mask^T leaves only the scores of the visible keys.
inline void key_mask(uint32_t address, uint32_t visible) {
    for (uint32_t key = 0; key < 32; ++key) {
        const uint32_t face = key / tile_rows::face_rows * tile_rows::faces_across;
        *reinterpret_cast<volatile tt_l1_ptr uint16_t*>(
            address + face * tile_rows::face_bytes + key % tile_rows::face_rows * tile_rows::row_bytes) =
            key < visible ? 0 : hidden;
    }
}

}  // namespace tile_masks
