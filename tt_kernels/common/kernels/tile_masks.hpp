// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Constant tiles a data movement kernel writes into its own L1 for the compute kernel, all bfloat16.

#pragma once

#include <cstdint>

#include "tile_rows.hpp"

namespace tile_masks {

constexpr uint16_t one = 0x3F80;
// Added to the score of a hidden key. exp() of it is 0 at any scale in use, and it is far from overflow.
constexpr uint16_t hidden = 0xCE6E;  // -998244352

inline void fill(uint32_t address, uint32_t bytes, uint32_t word) {
    volatile tt_l1_ptr uint32_t* words = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(address);
    for (uint32_t i = 0; i < bytes / sizeof(uint32_t); ++i) {
        words[i] = word;
    }
}

inline void zeros(uint32_t address) { fill(address, tile_rows::tile_bytes, 0); }

inline void ones(uint32_t address) { fill(address, tile_rows::tile_bytes, one << 16 | one); }

// What reduce_tile multiplies by: ones in the first row of each face.
inline void reduce_scaler(uint32_t address) {
    zeros(address);
    for (uint32_t face = 0; face < 4; ++face) {
        fill(address + face * tile_rows::face_bytes, tile_rows::row_bytes, one << 16 | one);
    }
}

// Column 0 is 0 for the first `visible` keys of a tile and `hidden` for the rest, the other columns are 0: the
// scores of a tile plus ones @ mask^T are those of its visible keys.
inline void key_mask(uint32_t address, uint32_t visible) {
    zeros(address);
    for (uint32_t key = visible; key < 32; ++key) {
        const uint32_t face = key / tile_rows::face_rows * tile_rows::faces_across;
        *reinterpret_cast<volatile tt_l1_ptr uint16_t*>(
            address + face * tile_rows::face_bytes + key % tile_rows::face_rows * tile_rows::row_bytes) = hidden;
    }
}

}  // namespace tile_masks
