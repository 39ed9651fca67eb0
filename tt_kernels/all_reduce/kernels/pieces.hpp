// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's pieces between tensors, packed chunks and the compute kernel's tiles; for data movement kernels.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/tile_masks.hpp"

namespace pieces {

// Of a worker's tiles, [begin, end).
struct Tiles {
    uint32_t begin, end;
};
constexpr Tiles all = {0, config::tiles};
constexpr Tiles readers = {0, config::readers_tiles}, writers = {config::readers_tiles, config::tiles};
// The reader has the sum to write before.
constexpr Tiles readers_norm = {0, config::tiles / 3}, rest_of_norm = {config::tiles / 3, config::tiles};

// Calls visit(NoC address, first tile, tiles) for those of `tiles` that lie one after another at one place of the NoC:
// those of a shard, or one. first: the tensor's page of the worker's first tile.
template <typename Accessor, typename Visit>
inline void for_each_place(const Accessor& tensor, uint32_t first, Tiles tiles, Visit visit) {
    if constexpr (Accessor::DSpec::is_interleaved) {
        for (uint32_t tile = tiles.begin; tile < tiles.end; ++tile) {
            visit(tensor.get_noc_addr(first + tile), tile, 1);
        }
    } else {
        const uint32_t volume = tensor.dspec().shard_volume(), page = first + tiles.begin;
        uint32_t shard = page / volume, before = page % volume;
        for (uint32_t tile = tiles.begin; tile < tiles.end; ++shard) {
            const uint32_t left = tiles.end - tile, room = volume - before;
            const uint32_t count = left < room ? left : room;
            visit(tensor.get_shard_noc_addr(shard) + before * config::tile_bytes, tile, count);
            tile += count;
            before = 0;
        }
    }
}

// Calls visit(place in the tensor, place in the compute kernel's tiles) for each piece of `count` tiles.
template <typename Visit>
inline void for_each_piece(uint32_t at, uint32_t tile, uint32_t count, Visit visit) {
    for (const uint32_t end = tile + count; tile < end; ++tile) {
        for (uint32_t piece = 0; piece < config::pieces; ++piece) {
            visit(at + piece * config::face_bytes, config::place(tile, piece));
        }
        at += config::tile_bytes;
    }
}

// Clears what follows a worker's pieces in tiles at `to`, without a barrier.
inline void clear_tail(uint32_t to) {
    if constexpr (config::tail_bytes > 0) {
        tile_masks::clear(to + config::chunk_bytes, config::tail_bytes);
    }
}

// Reads a worker's pieces of a tensor into tiles at `to`, without a barrier.
template <typename Accessor>
inline void gather(const Accessor& tensor, uint32_t first, uint32_t to, Tiles tiles = all) {
    for_each_place(tensor, first, tiles, [to](uint64_t from, uint32_t tile, uint32_t count) {
        noc_async_read_one_packet_set_state(from, config::piece_bytes);
        for_each_piece(from, tile, count, [to](uint32_t source, uint32_t place) {
            noc_async_read_one_packet_with_state(source, to + place);
        });
    });
}

// Writes a worker's pieces from tiles at `from` to a tensor, without a barrier.
template <typename Accessor>
inline void scatter(const Accessor& tensor, uint32_t first, uint32_t from, Tiles tiles = all) {
    for_each_place(tensor, first, tiles, [from](uint64_t to, uint32_t tile, uint32_t count) {
        noc_async_write_one_packet_set_state(to, config::piece_bytes);
        for_each_piece(to, tile, count, [from](uint32_t target, uint32_t place) {
            noc_async_write_one_packet_with_state(from + place, target);
        });
    });
}

// Calls visit(place in tiles, place in a packed chunk, bytes) for what is contiguous in both.
template <typename Visit>
inline void for_each_run(Tiles tiles, Visit visit) {
    constexpr uint32_t of_tile = config::pieces * config::piece_bytes;
    if constexpr (config::packed) {
        const uint32_t before = tiles.begin * of_tile;
        visit(before, before, tiles.end * of_tile - before);
    } else {
        uint32_t packed = tiles.begin * of_tile;
        for (uint32_t tile = tiles.begin; tile < tiles.end; ++tile) {
            for (uint32_t piece = 0; piece < config::pieces; ++piece) {
                visit(config::place(tile, piece), packed, config::piece_bytes);
                packed += config::piece_bytes;
            }
        }
    }
}

// Reads the worker's pieces of this chip's part to where the compute kernel takes them, and hands them to the link core
// at (x, y).
template <typename Accessor>
inline void hand_over(
    const Accessor& partial, uint32_t worker, uint32_t rank, uint32_t x, uint32_t y, Tiles tiles) {
    constexpr uint32_t packed_semaphore = get_named_compile_time_arg_val("packed_semaphore");
    const uint32_t own = get_write_ptr(config::cb_parts) + rank * config::block_bytes;
    const uint32_t packed =
        get_write_ptr(config::cb_packed) + worker * config::chunk_bytes;  // as on the link core
    gather(partial, worker * config::tiles, own, tiles);
    noc_async_read_barrier();
    for_each_run(tiles, [&](uint32_t from, uint32_t to, uint32_t bytes) {
        noc_async_write(own + from, get_noc_addr(x, y, packed + to), bytes);
    });
    noc_async_write_barrier();
    noc_semaphore_inc(get_noc_addr(x, y, get_semaphore(packed_semaphore)), 1);
}

// Once a RISC's part of the results is there, failed or not, it says so to the cores that multiply the norm in this program.
inline void finish() {
    constexpr uint32_t rows_semaphore = get_named_compile_time_arg_val("rows_semaphore");
    constexpr uint32_t multipliers = get_named_compile_time_arg_val("multipliers");
    noc_async_write_barrier();
    for (uint32_t core = 0; core < multipliers; ++core) {
        const uint32_t place = get_common_arg_val<uint32_t>(COMMON_INDEX(multipliers) + core);
        noc_semaphore_inc(get_noc_addr(place & 0xffff, place >> 16, get_semaphore(rows_semaphore)), 1);
    }
    noc_async_atomic_barrier();
}

}  // namespace pieces
