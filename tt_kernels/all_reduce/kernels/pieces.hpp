// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's pieces between tensors, packed chunks and the compute kernel's tiles; for data movement kernels.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "tt_kernels/common/kernels/tile_masks.hpp"

namespace pieces {

// Calls visit(NoC address, first tile, tiles) for the worker's tiles that lie one after another at one place of the NoC,
// from page `first` of the tensor on: those of a shard, or one.
template <typename Accessor, typename Visit>
inline void for_each_place(const Accessor& tensor, uint32_t first, Visit visit) {
    if constexpr (Accessor::DSpec::is_interleaved) {
        for (uint32_t tile = 0; tile < config::tiles; ++tile) {
            visit(tensor.get_noc_addr(first + tile), tile, 1);
        }
    } else {
        const uint32_t volume = tensor.dspec().shard_volume();
        uint32_t shard = first / volume, before = first % volume;
        for (uint32_t tile = 0; tile < config::tiles; ++shard) {
            const uint32_t left = config::tiles - tile, room = volume - before;
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

// Reads a worker's pieces of a tensor into tiles at `to`, without a barrier.
template <typename Accessor>
inline void gather(const Accessor& tensor, uint32_t first, uint32_t to) {
    for_each_place(tensor, first, [to](uint64_t from, uint32_t tile, uint32_t count) {
        noc_async_read_one_packet_set_state(from, config::piece_bytes);
        for_each_piece(from, tile, count, [to](uint32_t source, uint32_t place) {
            noc_async_read_one_packet_with_state(source, to + place);
        });
    });
    if constexpr (config::tail_bytes > 0) {
        tile_masks::clear(to + config::chunk_bytes, config::tail_bytes);
    }
}

// Writes a worker's pieces from tiles at `from` to a tensor, without a barrier.
template <typename Accessor>
inline void scatter(const Accessor& tensor, uint32_t first, uint32_t from) {
    for_each_place(tensor, first, [from](uint64_t to, uint32_t tile, uint32_t count) {
        noc_async_write_one_packet_set_state(to, config::piece_bytes);
        for_each_piece(to, tile, count, [from](uint32_t target, uint32_t place) {
            noc_async_write_one_packet_with_state(from + place, target);
        });
    });
}

// Calls visit(place in tiles, place in a packed chunk, bytes) for what is contiguous in both.
template <typename Visit>
inline void for_each_run(Visit visit) {
    if constexpr (config::packed) {
        visit(0, 0, config::chunk_bytes);
    } else {
        uint32_t packed = 0;
        for (uint32_t tile = 0; tile < config::tiles; ++tile) {
            for (uint32_t piece = 0; piece < config::pieces; ++piece) {
                visit(config::place(tile, piece), packed, config::piece_bytes);
                packed += config::piece_bytes;
            }
        }
    }
}

}  // namespace pieces
