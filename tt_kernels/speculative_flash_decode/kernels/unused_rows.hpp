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

constexpr uint32_t user_bytes = config::head_tiles * tile_rows::tile_bytes;

// Rows that belong to no query head, in the tiles of all users from `base`.
inline void clear(uint32_t base) {
    for (uint32_t tile = 0; tile < config::users() * config::head_tiles; ++tile) {
        tile_rows::for_each_piece(config::query_heads(), 32, [&](uint32_t offset, uint32_t bytes) {
            tile_masks::clear(base + tile * tile_rows::tile_bytes + offset, bytes);
        });
    }
}

// All rows of a user that is skipped.
inline void clear_user(uint32_t base, uint32_t user) {
    tile_masks::clear(base + user * user_bytes, user_bytes);
}

}  // namespace unused_rows
