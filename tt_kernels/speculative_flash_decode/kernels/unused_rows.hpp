// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Clears gathered results where no head writes; the zeros are there after the barrier of reads. Heads' rows, which may
// have landed already, are never touched.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "tt_kernels/common/kernels/tile_masks.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace unused_rows {

// Rows that belong to no query head, in the tiles of all users from `base`, of which there are `tile_bytes` each.
inline void clear(uint32_t base, uint32_t tile_bytes = tile_rows::tile_bytes) {
    const uint32_t rows = tile_bytes / (tile_rows::faces_across * tile_rows::row_bytes);
    for (uint32_t tile = 0; tile < config::users() * config::head_tiles; ++tile) {
        tile_rows::for_each_piece(config::query_heads(), rows, [&](uint32_t offset, uint32_t bytes) {
            tile_masks::clear(base + tile * tile_bytes + offset, bytes);
        });
    }
}

// All rows of a user that is skipped.
inline void clear_user(uint32_t base, uint32_t user, uint32_t tile_bytes = tile_rows::tile_bytes) {
    const uint32_t bytes = config::head_tiles * tile_bytes;
    tile_masks::clear(base + user * bytes, bytes);
}

}  // namespace unused_rows
