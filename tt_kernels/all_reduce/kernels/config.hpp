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
// A worker's two data movement RISCs pack half of its tiles each: the reader's come first, and are at least as many.
constexpr uint32_t readers_tiles = (tiles + 1) / 2;
constexpr uint32_t movers = tiles > 1 ? 2 : 1;
// Chunks of so many workers land on the first of them, as one packet if that can carry more than one.
constexpr uint32_t together = get_named_compile_time_arg_val("together");
constexpr uint32_t landing_bytes = together * chunk_bytes;
constexpr uint32_t blocks =
    dense ? (chunk_bytes + tile_bytes - 1) / tile_bytes : tiles;  // tiles for the compute kernel
constexpr uint32_t block_bytes = blocks * tile_bytes;
// Zeros after the pieces, to the end of the upper or lower two faces: the compute kernel works on nothing below.
constexpr uint32_t tail_bytes =
    dense ? (tile_bytes / 2 - chunk_bytes % (tile_bytes / 2)) % (tile_bytes / 2) : 0;
constexpr uint32_t square_pages = dense ? 1 : workers;

// Where a piece lies in the compute kernel's tiles.
constexpr uint32_t place(uint32_t tile, uint32_t piece) {
    return dense ? (tile * pieces + piece) * piece_bytes : tile * tile_bytes + piece * face_bytes;
}
constexpr bool packed = dense || piece_bytes == tile_bytes;  // the pieces there follow each other

// What the link core adds to a semaphore of each worker, which starts at 0.
constexpr uint32_t odd_slot = 1;  // if the call's slots are the odd ones; with the first
constexpr uint32_t received =
    2;  // for each other chip whose rows are there, in the order of for_each_other()
constexpr uint32_t failed = 1024;

// Calls visit(chip) for the other chips, the nearest first, as their rows come. Whether it was true for all; stops at the
// first for which it was not.
template <typename Visit>
inline bool for_each_other(uint32_t self, Visit visit) {
    for (uint32_t hops = 1; hops < chips; ++hops) {
        if ((hops <= self && !visit(self - hops)) || (self + hops < chips && !visit(self + hops))) {
            return false;
        }
    }
    return true;
}

}  // namespace config
