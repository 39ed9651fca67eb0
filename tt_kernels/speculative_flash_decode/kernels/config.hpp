// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What this op has besides attention_config.hpp.

#pragma once

#include "tt_kernels/common/kernels/attention_config.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace config {

inline bool guess_alone() { return COMMON_ARG(guess_alone) != 0; }
inline uint32_t query_heads() { return kv_heads() * group_heads(); }
constexpr uint32_t query_tiles() { return 1; }
constexpr uint32_t band_rows = 4;  // of register_rows.hpp
// That a worker sends of a head, for each band of its query rows (dense_partials.hpp).
inline uint32_t partials() { return (group_heads() + band_rows - 1) / band_rows; }
inline uint32_t chunk_tiles() { return key_tiles(); }
inline uint32_t items() { return users() * kv_heads(); }
// Of a tile on its way to the peer: the faces that hold query heads.
inline uint32_t outgoing_tile_bytes() {
    return query_heads() <= tile_rows::face_rows ? tile_rows::tile_bytes / 2 : tile_rows::tile_bytes;
}

constexpr uint32_t dense_pages = 2;
constexpr SlotBuffer slot_buffers[] = {{cb_gathered, dense_pages}};
constexpr uint32_t cb_dense = get_named_compile_time_arg_val("cb_dense");
constexpr uint32_t cb_result =
    get_named_compile_time_arg_val("cb_result");  // guesses and exact results in turn
constexpr uint32_t cb_mask = get_named_compile_time_arg_val("cb_mask");
constexpr uint32_t cb_exact = get_named_compile_time_arg_val("cb_exact");

// Heads whose guess is on the exchange core; and for each user, of which this is the first, what has landed on the core
// that gathers the results.
constexpr uint32_t sem_outgoing = get_named_compile_time_arg_val("sem_outgoing");
constexpr uint32_t sem_user = get_named_compile_time_arg_val("sem_user");
constexpr uint32_t guess_landed = 1;  // heads add this to it once their rows have landed there
constexpr uint32_t exact_landed = 1 << 16;

}  // namespace config
