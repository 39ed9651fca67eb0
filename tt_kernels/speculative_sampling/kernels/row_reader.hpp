// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads rows of logits into L1, id by id, whatever their layout in DRAM.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace row_reader {

constexpr uint16_t minus_infinity = 0xFF80;
constexpr uint32_t tile_side = 32;

// A row of logits [users, nodes, vocab] in DRAM.
struct Place {
    uint32_t user, node, nodes, vocab;
};

constexpr uint32_t piece_ids = 16;
constexpr uint32_t piece_bytes = piece_ids * config::logit_bytes;

// The address of the piece of a row that begins at id `first`, a multiple of piece_ids.
template <typename Accessor>
inline uint64_t piece_address(const Accessor& logits, const Place& place, uint32_t first) {
    if constexpr (config::tiled) {
        const uint32_t across = (place.vocab + tile_side - 1) / tile_side;
        const uint32_t half = tile_rows::face_rows * tile_rows::row_bytes;
        const uint32_t face = place.node / tile_rows::face_rows * tile_rows::faces_across;
        const uint32_t offset = face * half + place.node % tile_rows::face_rows * tile_rows::row_bytes;
        return logits.get_noc_addr(place.user * across + first / tile_side) + offset +
               first % tile_side / piece_ids * half;
    } else {
        return logits.get_noc_addr(place.user * place.nodes + place.node) + first * config::logit_bytes;
    }
}

// Starts to read the piece of a row that holds `id`; noc_async_read_barrier() ends it.
template <typename Accessor>
inline void start_piece(const Accessor& logits, const Place& place, uint32_t id, uint32_t to) {
    noc_async_read(piece_address(logits, place, id / piece_ids * piece_ids), to, piece_bytes);
}

// Starts to read `ids` ids of a row from `first` on, a multiple of config::tile_ids; noc_async_read_barrier() ends it.
template <typename Accessor>
inline void start(const Accessor& logits, const Place& place, uint32_t first, uint32_t ids, uint32_t to) {
    if constexpr (config::tiled) {
        const uint32_t half = tile_rows::face_rows * tile_rows::row_bytes;
        for (uint32_t id = 0; id < ids; id += tile_side) {
            const uint64_t from = piece_address(logits, place, first + id);
            noc_async_read(from, to, tile_rows::row_bytes);
            noc_async_read(from + half, to + tile_rows::row_bytes, tile_rows::row_bytes);
            to += 2 * tile_rows::row_bytes;
        }
    } else {
        const uint64_t from = piece_address(logits, place, first);
        const uint32_t bytes = ids * config::logit_bytes;
        for (uint32_t done = 0; done < bytes; done += config::row_tile_bytes) {
            const uint32_t left = bytes - done;
            noc_async_read(
                from + done, to + done, left < config::row_tile_bytes ? left : config::row_tile_bytes);
        }
    }
}

constexpr uint32_t step = 64;  // ids of two vectors

// Gives no weight to ids from `ids` to the end of what the calculator looks at.
inline void fill(uint32_t row, uint32_t ids) {
    volatile tt_l1_ptr uint16_t* logits = reinterpret_cast<volatile tt_l1_ptr uint16_t*>(row);
    uint32_t id = ids;
    for (; id % step != 0 && id % 2 != 0; ++id) {
        logits[id] = minus_infinity;
    }
    volatile tt_l1_ptr uint32_t* pairs = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(row);
    for (; id % step != 0; id += 2) {
        pairs[id / 2] = static_cast<uint32_t>(minus_infinity) << 16 | minus_infinity;
    }
}

}  // namespace row_reader
