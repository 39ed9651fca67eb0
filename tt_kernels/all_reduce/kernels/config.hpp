// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of the all-reduce agree on.
//
// A worker has `tiles` tiles of the row. Of each, `pieces` pieces of `piece_bytes` are in use, one at the start of each
// face, or the whole tile. Between cores and chips they travel packed. For the compute kernel the pieces of one user lie
// packed too, 1024 columns in a tile ("dense"); those of more users lie in tiles as they came, a user in a row.

#pragma once

#include <cstdint>

namespace config {

constexpr uint32_t cb_packed =
    get_named_compile_time_arg_val("cb_packed");                           // of all workers, on the link core
constexpr uint32_t cb_parts = get_named_compile_time_arg_val("cb_parts");  // of each chip, in chip order
constexpr uint32_t cb_residual = get_named_compile_time_arg_val("cb_residual");
constexpr uint32_t cb_sum = get_named_compile_time_arg_val("cb_sum");
constexpr uint32_t cb_weights = get_named_compile_time_arg_val("cb_weights");  // a row for each user
constexpr uint32_t cb_normed = get_named_compile_time_arg_val("cb_normed");
// float32:
constexpr uint32_t cb_exact = get_named_compile_time_arg_val("cb_exact");  // the sum before it is rounded
constexpr uint32_t cb_own_square = get_named_compile_time_arg_val("cb_own_square");    // sums of squares
constexpr uint32_t cb_all_squares = get_named_compile_time_arg_val("cb_all_squares");  // of all workers
// and unless dense:
constexpr uint32_t cb_scale = get_named_compile_time_arg_val("cb_scale");

constexpr uint32_t chips = get_named_compile_time_arg_val("chips");
constexpr uint32_t workers = get_named_compile_time_arg_val("workers");
constexpr uint32_t users = get_named_compile_time_arg_val("users");
constexpr uint32_t tiles = get_named_compile_time_arg_val("tiles");
constexpr uint32_t pieces = get_named_compile_time_arg_val("pieces");
constexpr uint32_t piece_bytes = get_named_compile_time_arg_val("piece_bytes");
constexpr bool has_residual = get_named_compile_time_arg_val("has_residual");
constexpr bool has_norm = get_named_compile_time_arg_val("has_norm");

constexpr uint32_t tile_bytes = 2048, face_bytes = 512, row_bytes = 32;                     // bfloat16
constexpr uint32_t exact_tile_bytes = 4096, exact_face_bytes = 1024, exact_row_bytes = 64;  // float32
constexpr uint32_t face_rows = 16;

constexpr bool dense = get_named_compile_time_arg_val("dense");
constexpr uint32_t chunk_bytes = tiles * pieces * piece_bytes;  // a worker's pieces
constexpr uint32_t blocks =
    dense ? (chunk_bytes + tile_bytes - 1) / tile_bytes : tiles;  // tiles for the compute kernel
constexpr uint32_t block_bytes = blocks * tile_bytes;
constexpr uint32_t tail_bytes = dense ? block_bytes - chunk_bytes : 0;  // zeros after the pieces
constexpr uint32_t square_pages = dense ? 1 : workers;

// Where a piece lies in the compute kernel's tiles.
constexpr uint32_t place(uint32_t tile, uint32_t piece) {
    return dense ? (tile * pieces + piece) * piece_bytes : tile * tile_bytes + piece * face_bytes;
}
constexpr bool packed = dense || piece_bytes == tile_bytes;  // the pieces there follow each other

// The link core's decision, in a semaphore of each worker that starts at 0.
constexpr uint32_t received = 1;  // into the even slots; 2: into the odd ones
constexpr uint32_t failed = 3;

}  // namespace config
