// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Writes each user's row of this core's head into the cache, at the user's position. Of bfloat8_b tiles the exponents of
// that half of their rows are read, changed and written back: nobody else writes to these tiles.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/head_rows.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace {

constexpr uint32_t cb_packed = get_named_compile_time_arg_val("cb_packed");
constexpr uint32_t cb_words = get_named_compile_time_arg_val("cb_words");
constexpr uint32_t tiles = get_named_compile_time_arg_val("tiles");
constexpr uint32_t users = get_named_compile_time_arg_val("users");
constexpr uint32_t positions_bytes = get_named_compile_time_arg_val("positions_bytes");
constexpr bool block_float = get_named_compile_time_arg_val("block_float");
constexpr bool paged = get_named_compile_time_arg_val("paged");

constexpr uint32_t tile_tokens = 32, line_bytes = 32;  // DRAM is read by lines
constexpr uint32_t faces = tile_rows::faces_across, face_rows = tile_rows::face_rows;
constexpr uint32_t tile_bytes = block_float ? tile_rows::block_float_tile_bytes : tile_rows::tile_bytes;
constexpr uint32_t elements_at = block_float ? tile_rows::exponents_bytes : 0;
constexpr uint32_t row_bytes = block_float ? tile_rows::row_bytes / 2 : tile_rows::row_bytes;

using Bytes = volatile tt_l1_ptr uint8_t*;
using Integers = const volatile tt_l1_ptr int32_t*;

// The left one of a row's two rows of faces, of the tile's 64.
uint32_t face_row_of(uint32_t row) { return row / face_rows * faces * face_rows + row % face_rows; }

}  // namespace

void kernel_main() {
    const auto cache = TensorAccessor(ACCESSOR_ARGS(cache), COMMON_ARG(cache));
    const auto positions = TensorAccessor(ACCESSOR_ARGS(positions), COMMON_ARG(positions));
    const auto pages = TensorAccessor(ACCESSOR_ARGS(pages), COMMON_ARG(pages));
    const head_rows::Shape shape{COMMON_ARG(kv_heads), COMMON_ARG(cache_tiles), COMMON_ARG(block_shift)};
    const uint32_t words = get_write_ptr(cb_words);
    const uint32_t lines = words + positions_bytes;         // of the page table, one for each user
    const uint32_t exponents = lines + users * line_bytes;  // a line for each tile of each user
    const Integers position_of = reinterpret_cast<Integers>(words);

    const auto for_each_user = [&](auto visit) {
        for (uint32_t user = 0; user < users; ++user) {
            const int32_t position = position_of[user];
            if (position >= 0 && static_cast<uint32_t>(position) < shape.tiles * tile_tokens) {
                visit(user, static_cast<uint32_t>(position));
            }
        }
    };
    constexpr uint32_t entries = line_bytes / sizeof(uint32_t);
    const auto first_entry = [&](uint32_t position) {
        return ((position / tile_tokens) >> shape.shift) / entries * entries;
    };
    const auto page_of = [&](uint32_t user, uint32_t position) {
        // Where the row of the page table would begin whose one line is there.
        const uint32_t row = lines + user * line_bytes - first_entry(position) * sizeof(uint32_t);
        return head_rows::of<tiles, paged>(shape, user, RUNTIME_ARG(head), row).page(position / tile_tokens);
    };

    noc_async_read_page(0, positions, words);
    noc_async_read_barrier();
    if constexpr (paged) {
        for_each_user([&](uint32_t user, uint32_t position) {
            const uint64_t from = pages.get_noc_addr(user) + first_entry(position) * sizeof(uint32_t);
            noc_async_read(from, lines + user * line_bytes, line_bytes);
        });
        noc_async_read_barrier();
    }
    // The exponents of both faces of 16 rows are one line.
    const auto half_of = [](uint32_t position) { return position % tile_tokens / face_rows * line_bytes; };
    if constexpr (block_float) {
        for_each_user([&](uint32_t user, uint32_t position) {
            const uint32_t page = page_of(user, position);
            for (uint32_t tile = 0; tile < tiles; ++tile) {
                noc_async_read(
                    cache.get_noc_addr(page + tile) + half_of(position),
                    exponents + (user * tiles + tile) * line_bytes, line_bytes);
            }
        });
        noc_async_read_barrier();
    }
    cb_wait_front(cb_packed, tiles);
    const uint32_t packed = get_read_ptr(cb_packed);
    if constexpr (block_float) {
        for_each_user([&](uint32_t user, uint32_t position) {
            for (uint32_t tile = 0; tile < tiles; ++tile) {
                const Bytes from = reinterpret_cast<Bytes>(packed + tile * tile_bytes + face_row_of(user));
                const Bytes to = reinterpret_cast<Bytes>(
                    exponents + (user * tiles + tile) * line_bytes + position % face_rows);
                for (uint32_t face = 0; face < faces; ++face) {
                    to[face * face_rows] = from[face * face_rows];
                }
            }
        });
        // A value that was read back has reached L1; a store alone may not have when the NoC starts reading.
        (void)*reinterpret_cast<Bytes>(exponents);
    }
    for_each_user([&](uint32_t user, uint32_t position) {
        const uint32_t page = page_of(user, position);
        const uint32_t from = face_row_of(user), to = face_row_of(position % tile_tokens);
        for (uint32_t tile = 0; tile < tiles; ++tile) {
            const uint64_t target = cache.get_noc_addr(page + tile);
            for (uint32_t face = 0; face < faces; ++face) {
                const uint32_t source = packed + tile * tile_bytes + elements_at;
                noc_async_write(
                    source + (from + face * face_rows) * row_bytes,
                    target + elements_at + (to + face * face_rows) * row_bytes, row_bytes);
            }
            if constexpr (block_float) {
                noc_async_write(
                    exponents + (user * tiles + tile) * line_bytes, target + half_of(position), line_bytes);
            }
        }
    });
    noc_async_write_barrier();
}
