// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Moves rows of tiles into a KV cache: new rows to after the prefix, or a verified tree's accepted rows to where they
// belong. A job is one column of tiles of one head of one user in one cache, and no two jobs touch the same tile: the
// tiles are read, rows are copied in L1 as they are stored, and what changed is written back.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/head_rows.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace {

constexpr bool committing = get_named_compile_time_arg_val("committing") == 1;
constexpr bool block_float = get_named_compile_time_arg_val("block_float") == 1;
constexpr uint32_t source_cb = get_named_compile_time_arg_val("source_cb");
constexpr uint32_t target_cb = get_named_compile_time_arg_val("target_cb");
constexpr uint32_t words_cb = get_named_compile_time_arg_val("words_cb");
constexpr uint32_t prefix_bytes = get_named_compile_time_arg_val("prefix_bytes");
constexpr uint32_t path_bytes = get_named_compile_time_arg_val("path_bytes");

constexpr uint32_t tile_tokens = 32;
constexpr uint32_t tile_bytes = block_float ? tile_rows::block_float_tile_bytes : tile_rows::tile_bytes;

using Words = volatile tt_l1_ptr uint32_t*;
using Integers = const volatile tt_l1_ptr int32_t*;

uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }

// Loads before stores: the loads of a row are under way at once.
template <uint32_t count>
inline void copy_words(uint32_t from, uint32_t to) {
    Words source = reinterpret_cast<Words>(from);
    Words target = reinterpret_cast<Words>(to);
    uint32_t held[count];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < count; ++i) {
        held[i] = source[i];
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < count; ++i) {
        target[i] = held[i];
    }
}

// The place of a row of a face: which one of the tile's 64, and the tile's first byte.
struct Place {
    uint32_t tile;
    uint32_t face_row;

    // The place of a row, counted from the first of the tiles at `base`, in its left face.
    static Place of(uint32_t base, uint32_t row) {
        const uint32_t in_tile = row % tile_tokens;
        const uint32_t face = in_tile / tile_rows::face_rows * tile_rows::faces_across;
        return {
            base + row / tile_tokens * tile_bytes,
            face * tile_rows::face_rows + in_tile % tile_rows::face_rows};
    }
};

inline void copy_row(uint32_t from_base, uint32_t from_row, uint32_t to_base, uint32_t to_row) {
    const Place from = Place::of(from_base, from_row), to = Place::of(to_base, to_row);
    for (uint32_t face = 0; face < tile_rows::faces_across; ++face) {
        const uint32_t read = from.face_row + face * tile_rows::face_rows;
        const uint32_t written = to.face_row + face * tile_rows::face_rows;
        if constexpr (block_float) {
            constexpr uint32_t bytes = tile_rows::row_bytes / 2;
            copy_words<bytes / 4>(
                from.tile + tile_rows::exponents_bytes + read * bytes,
                to.tile + tile_rows::exponents_bytes + written * bytes);
            *reinterpret_cast<volatile tt_l1_ptr uint8_t*>(to.tile + written) =
                *reinterpret_cast<volatile tt_l1_ptr uint8_t*>(from.tile + read);
        } else {
            constexpr uint32_t bytes = tile_rows::row_bytes;
            copy_words<bytes / 4>(from.tile + read * bytes, to.tile + written * bytes);
        }
    }
}

constexpr uint32_t head_tiles = get_named_compile_time_arg_val("head_tiles");
constexpr bool paged = get_named_compile_time_arg_val("paged") == 1;

// Tiles [begin, end) of column `column` of a head's rows of tiles.
template <typename Rows>
struct Column {
    Rows head;
    uint32_t column;
    uint32_t begin;
    uint32_t end;

    template <typename Accessor>
    void read(const Accessor& tensor, uint32_t to) const {
        for (uint32_t tile = begin; tile < end; ++tile, to += tile_bytes) {
            noc_async_read_page(head.page(tile) + column, tensor, to);
        }
    }

    template <typename Accessor>
    void write(const Accessor& tensor, uint32_t from) const {
        for (uint32_t tile = begin; tile < end; ++tile, from += tile_bytes) {
            noc_async_write(from, tensor.get_noc_addr(head.page(tile) + column), tile_bytes);
        }
    }
};

uint32_t tiles_up_to(uint32_t rows) { return (rows + tile_tokens - 1) / tile_tokens; }

// The number of accepted nodes after the root: up to the first entry that is no node.
uint32_t path_length(Integers path, uint32_t nodes) {
    uint32_t length = 0;
    while (length < nodes && path[length] >= 0 && static_cast<uint32_t>(path[length]) < nodes) {
        ++length;
    }
    return length;
}

// The first step of the path that moves: node j + 1 is already where element j of the path goes.
uint32_t first_moved(Integers path, uint32_t length) {
    uint32_t step = 0;
    while (step < length && static_cast<uint32_t>(path[step]) == step + 1) {
        ++step;
    }
    return step;
}

}  // namespace

void kernel_main() {
    const uint32_t users = COMMON_ARG(users), kv_heads = COMMON_ARG(kv_heads);
    const uint32_t nodes = COMMON_ARG(nodes);
    const uint32_t cache_tiles = COMMON_ARG(capacity) / tile_tokens;
    const uint32_t source = get_write_ptr(source_cb), target = get_write_ptr(target_cb);
    const uint32_t words = get_write_ptr(words_cb);
    const head_rows::Shape shape{kv_heads, cache_tiles, COMMON_ARG(block_shift)};
    const auto pages = TensorAccessor(ACCESSOR_ARGS(pages), COMMON_ARG(pages));
    const uint32_t blocks = words + prefix_bytes + path_bytes;
    uint32_t blocks_user = users;  // whose row of the page table is there

    const auto prefixes = TensorAccessor(ACCESSOR_ARGS(prefix), COMMON_ARG(prefix));
    noc_async_read_page(0, prefixes, words);
    noc_async_read_barrier();
    const Integers prefix_of = reinterpret_cast<Integers>(words);
    const Integers path = reinterpret_cast<Integers>(words + prefix_bytes) + COMMON_ARG(first_column);
    uint32_t path_user = users;  // whose path is there

    for (uint32_t job = RUNTIME_ARG(core); job < COMMON_ARG(jobs); job += COMMON_ARG(cores)) {
        const uint32_t column = job % head_tiles;
        const uint32_t item = job / head_tiles % (users * kv_heads);
        const uint32_t which = job / head_tiles / (users * kv_heads);
        const uint32_t user = item / kv_heads, head = item % kv_heads;
        if (prefix_of[user] < 0) {
            continue;
        }
        const uint32_t prefix = prefix_of[user];
        const uint32_t end = min(prefix + nodes, COMMON_ARG(capacity));
        if (prefix >= end) {
            continue;
        }
        const auto cache =
            TensorAccessor(ACCESSOR_ARGS(cache), get_common_arg_val<uint32_t>(COMMON_INDEX(caches) + which));
        if (paged && blocks_user != user) {
            head_rows::fetch(pages, shape, user, end, blocks);
            noc_async_read_barrier();
            blocks_user = user;
        }
        Column<head_rows::Rows<head_tiles, paged>> written{
            head_rows::of<head_tiles, paged>(shape, user, head, blocks), column, prefix / tile_tokens,
            tiles_up_to(end)};

        if constexpr (committing) {
            if (path_user != user) {
                const auto paths = TensorAccessor(ACCESSOR_ARGS(path), COMMON_ARG(path));
                noc_async_read_page(user, paths, words + prefix_bytes);
                noc_async_read_barrier();
                path_user = user;
            }
            const uint32_t length = min(path_length(path, nodes), end - prefix - 1);
            const uint32_t from = first_moved(path, length);
            if (from == length) {
                continue;
            }
            const auto read = written;
            written.begin = (prefix + 1 + from) / tile_tokens;
            written.end = tiles_up_to(prefix + 1 + length);
            read.read(cache, source);
            written.read(cache, target);
            noc_async_read_barrier();
            for (uint32_t step = from; step < length; ++step) {
                const uint32_t row = prefix + path[step];
                if (row < end) {
                    copy_row(
                        source, row - read.begin * tile_tokens, target,
                        prefix + 1 + step - written.begin * tile_tokens);
                }
            }
        } else {
            const auto fresh = TensorAccessor(
                ACCESSOR_ARGS(source), get_common_arg_val<uint32_t>(COMMON_INDEX(sources) + which));
            const uint32_t first = user * nodes;
            const Column<head_rows::Rows<head_tiles, false>> read{
                {head * COMMON_ARG(source_tiles) * head_tiles},
                column,
                first / tile_tokens,
                tiles_up_to(first + end - prefix)};
            read.read(fresh, source);
            written.read(cache, target);
            noc_async_read_barrier();
            for (uint32_t node = 0; node < end - prefix; ++node) {
                copy_row(
                    source, first + node - read.begin * tile_tokens, target,
                    prefix + node - written.begin * tile_tokens);
            }
        }
        // A value that was read back has reached L1; a store alone may not have when the NoC starts reading.
        (void)*reinterpret_cast<Words>(target);
        written.write(cache, target);
        noc_async_write_barrier();
    }
}
