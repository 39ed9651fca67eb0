// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Fetches the users' rows from where they are, a block of the inner dimension at a time, then takes the result to the
// cores that shall hold it. Of a tile only the rows in use are moved: what the others hold stays, and reaches no row in
// use.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/blocks_in_turn.hpp"

namespace {

constexpr uint32_t cb_rows = get_named_compile_time_arg_val("cb_rows");
constexpr uint32_t cb_result = get_named_compile_time_arg_val("cb_result");
constexpr uint32_t blocks = get_named_compile_time_arg_val("blocks");
constexpr uint32_t inner = get_named_compile_time_arg_val("inner");
constexpr uint32_t slots = get_named_compile_time_arg_val("slots");
// Kernels of this program that write the rows and then say so; 0: the rows are there.
constexpr uint32_t makers = get_named_compile_time_arg_val("makers");
constexpr uint32_t rows_semaphore = get_named_compile_time_arg_val("rows_semaphore");
constexpr uint32_t pieces = 2;  // of a tile: of each of its upper faces
constexpr uint32_t users = get_named_compile_time_arg_val("users");
constexpr uint32_t heads = get_named_compile_time_arg_val("heads");  // of each user; 0: rows are joined
constexpr uint32_t row_tiles = get_named_compile_time_arg_val("row_tiles");
constexpr uint32_t result_tiles = get_named_compile_time_arg_val("result_tiles");
constexpr uint32_t kept_bytes = get_tile_size(cb_rows);  // here: the upper half of a tile
constexpr uint32_t tile_bytes = 2 * kept_bytes;
constexpr uint32_t face_bytes = tile_bytes / 4;
constexpr uint32_t tile_rows = 32;
constexpr uint32_t face_rows = 16;
constexpr uint32_t row_bytes = face_bytes / face_rows;
constexpr uint32_t piece_bytes = users * row_bytes;

uint64_t on_core(uint32_t places, uint32_t index, uint32_t address) {
    const uint32_t place = get_common_arg_val<uint32_t>(places + index);
    return get_noc_addr(place & 0xffff, place >> 16, address);
}

// Joined rows, sharded by columns.
void fetch_rows(uint32_t block, uint32_t to) {
    const uint32_t end = (block + 1) * inner;
    for (uint32_t tile = block * inner, count = 0; tile < end; tile += count) {
        const uint32_t at = tile % row_tiles;
        count = row_tiles - at < end - tile ? row_tiles - at : end - tile;
        const uint64_t base =
            on_core(COMMON_INDEX(row_places), tile / row_tiles, COMMON_ARG(rows) + at * tile_bytes);
        noc_async_read_one_packet_set_state(base, piece_bytes);
        uint32_t from = static_cast<uint32_t>(base);
        for (uint32_t i = 0; i < count; ++i, from += tile_bytes, to += kept_bytes) {
            for (uint32_t piece = 0; piece < pieces; ++piece) {
                noc_async_read_one_packet_with_state(from + piece * face_bytes, to + piece * face_bytes);
            }
        }
    }
}

// Rows of heads, [users, heads, head_dim], interleaved: a head's tiles follow those of the head before.
void fetch_heads(uint32_t block, uint32_t to) {
    constexpr uint32_t high = (heads + tile_rows - 1) / tile_rows;
    const auto pages = TensorAccessor(ACCESSOR_ARGS(rows), COMMON_ARG(rows));
    for (uint32_t tile = block * inner; tile < (block + 1) * inner; ++tile, to += kept_bytes) {
        const uint32_t head = tile / row_tiles;
        const uint32_t row = head % tile_rows;
        const uint32_t inside = row / face_rows * 2 * face_bytes + row % face_rows * row_bytes;
        uint32_t page = head / tile_rows * row_tiles + tile % row_tiles;
        for (uint32_t user = 0; user < users; ++user, page += high * row_tiles) {
            const uint64_t from = pages.get_noc_addr(page, inside);
            for (uint32_t piece = 0; piece < pieces; ++piece) {
                noc_async_read_one_packet(
                    from + piece * face_bytes, to + piece * face_bytes + user * row_bytes, row_bytes);
            }
        }
    }
}

}  // namespace

void kernel_main() {
    const uint32_t first = RUNTIME_ARG(first);
    const uint32_t count = RUNTIME_ARG(count);
    if constexpr (makers > 0) {
        noc_semaphore_wait_min(
            reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(rows_semaphore)), makers);
    }
    blocks_in_turn::read<cb_rows, blocks, inner, slots>(heads ? fetch_heads : fetch_rows);

    const uint32_t from = get_read_ptr(cb_result);
    for (uint32_t column = 0; column < count; ++column) {
        cb_wait_front(cb_result, column + 1);
        const uint32_t tile = first + column;
        const uint64_t to = on_core(
            COMMON_INDEX(result_places), tile / result_tiles,
            COMMON_ARG(result) + tile % result_tiles * tile_bytes);
        for (uint32_t piece = 0; piece < pieces; ++piece) {
            noc_async_write_one_packet(
                from + column * kept_bytes + piece * face_bytes, to + piece * face_bytes, piece_bytes);
        }
    }
    noc_async_write_barrier();
}
