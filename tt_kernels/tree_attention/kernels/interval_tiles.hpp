// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The tree's mask as a product of two thin factors (FlashSpecInfer, section 5.1). Query r sees key c where
// enter[c] <= enter[r] and leave[c] >= leave[r]. With a tile of queries' times Q and two tiles of keys' times E and L,
//
//     Q @ E^T = enter[r] - enter[c] + 1/2      Q @ L^T = leave[c] - leave[r] + 1/2
//
// and c is hidden from r where either is negative. So the matrix unit computes the mask from a few values per row, and
// no mask is stored. Rows, all zeros after these, in pairs of quotient times 16 and remainder by 16:
//
//     Q   enter     leave     1, 1      1, 0
//     E   1, 1      0, 0      -enter    1/2, 0
//     L   0, 0      -1, -1    leave     1/2, 0
//
// Times are below 256, so each part has four bits, which every math fidelity multiplies exactly; and no result is 0,
// whose sign would depend on the unit. Tokens of the prefix have enter -1 and leave 256, so all nodes see them; tokens
// after the nodes enter at 512.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "jobs.hpp"
#include "tt_kernels/common/kernels/tile_masks.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace interval_tiles {

constexpr uint32_t two_ones = tile_masks::one << 16 | tile_masks::one;
constexpr uint32_t negative = 0x80008000;
constexpr uint32_t one = tile_masks::one;               // 1, 0
constexpr uint32_t half = 0x00003F00;                   // 1/2, 0
constexpr uint32_t prefix_enter = one;                  // negated, as all of E
constexpr uint32_t prefix_leave = 0x00004380;           // 256, 0
constexpr uint32_t behind_enter = 0x00004400 ^ 0x8000;  // -512, 0

// 0 to 15 as bfloat16.
constexpr uint16_t small[] = {0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0,
                              0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170};
constexpr uint32_t times_16 = 4 << 7;  // of a bfloat16 that is not 0

inline uint32_t parts_of(uint32_t time) {
    const uint32_t high = time >> 4;
    return (high == 0 ? 0 : small[high] + times_16) | static_cast<uint32_t>(small[time & 15]) << 16;
}

// Calls write(row, words) for the first `rows` rows of a tile; words: the first words of the row.
template <typename Write>
inline void for_each_row(uint32_t tile, uint32_t rows, Write write) {
    constexpr uint32_t row_words = tile_rows::row_bytes / sizeof(uint32_t);
    constexpr uint32_t face_words = tile_rows::face_bytes / sizeof(uint32_t);
    volatile tt_l1_ptr uint32_t* words = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(tile);
    for (uint32_t row = 0; row < rows; ++row) {
        write(row, words);
        words += row_words;
        if (row == tile_rows::face_rows - 1) {
            words += face_words;  // over the right face
        }
    }
}

// The times of one tree's nodes in this core's L1, fetched when the tree changes.
class Times {
public:
    // Splits both times of each node into parts, in place.
    template <typename Accessor>
    __attribute__((noinline)) void fetch(uint32_t tree, const Accessor& intervals) {
        const uint32_t nodes = config::nodes();
        if constexpr (config::prefills) {  // all are chains
            if (tree_ == none) {
                tree_ = 0;
                for (uint32_t node = 0; node < nodes; ++node) {
                    words(0)[node] = parts_of(node);
                    words(1)[node] = parts_of(nodes - 1);
                }
            }
            return;
        }
        if (tree == tree_) {
            return;
        }
        tree_ = tree;
        for (uint32_t which = 0; which < 2; ++which) {
            noc_async_read(intervals.get_noc_addr(2 * tree + which), start(which), nodes * sizeof(uint32_t));
        }
        noc_async_read_barrier();
        if constexpr (config::speculate) {
            // Nodes of the first one's tree; the others fill narrower trees up.
            const uint32_t last = words(1)[0];
            all_count_ = true;
            for (uint32_t node = 0; node < nodes; ++node) {
                const uint32_t bit = 1u << node % 32;
                uint32_t& part = counted_[node / 32];
                const bool counts = words(0)[node] <= last;
                part = counts ? part | bit : part & ~bit;
                all_count_ = all_count_ && counts;
            }
        }
        for (uint32_t which = 0; which < 2; ++which) {
            volatile tt_l1_ptr uint32_t* times = words(which);
            for (uint32_t node = 0; node < nodes; ++node) {
                times[node] = parts_of(times[node]);
            }
        }
    }

    // Whether a node of the fetched tree belongs to the tree of its first one.
    bool counts(uint32_t node) const { return (counted_[node / 32] >> node % 32 & 1) != 0; }

    bool all_count() const { return all_count_; }

    // Writes the rows of all query tiles of `job`, which repeat themselves, so the NoC copies most of them.
    void write_queries(uint32_t address, const jobs::Job& job) const {
        const uint32_t nodes = config::nodes();
        uint32_t period = nodes;  // in tiles
        for (uint32_t rows = 32; period % 2 == 0 && rows > 1; rows /= 2) {
            period /= 2;
        }
        const uint32_t by_hand = attention::min(period, job.tiles());
        uint32_t node = job.first_row % nodes;
        const volatile tt_l1_ptr uint32_t *enters = words(0), *leaves = words(1);
        for (uint32_t tile = 0; tile < by_hand; ++tile) {
            for_each_row(
                address + tile * tile_rows::tile_bytes, 32, [&](uint32_t, volatile tt_l1_ptr uint32_t* row) {
                    row[0] = enters[node];
                    row[1] = leaves[node];
                    row[2] = two_ones;
                    row[3] = one;
                    node = node + 1 == nodes ? 0 : node + 1;
                });
        }
        if (by_hand == job.tiles()) {
            return;
        }
        // A value that was read back has reached L1; a store alone may not have when the NoC starts reading.
        const uint32_t last_row =
            by_hand * tile_rows::tile_bytes - tile_rows::face_bytes - tile_rows::row_bytes;
        (void)*reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(
            address + last_row + 3 * sizeof(uint32_t));
        for (uint32_t tile = by_hand; tile < job.tiles(); ++tile) {
            noc_async_read(
                get_noc_addr(address + tile % period * tile_rows::tile_bytes),
                address + tile * tile_rows::tile_bytes, tile_rows::tile_bytes);
        }
        noc_async_read_barrier();
    }

    // Writes the rows of key tile `tile` of the cache, in two tiles: E and L.
    void write_keys(uint32_t address, const jobs::Span& span, uint32_t tile) const {
        const volatile tt_l1_ptr uint32_t *enters = words(0), *leaves = words(1);
        for_each_row(address, 32, [&](uint32_t row, volatile tt_l1_ptr uint32_t* of_enter) {
            volatile tt_l1_ptr uint32_t* of_leave = of_enter + tile_rows::tile_bytes / sizeof(uint32_t);
            const uint32_t position = tile * 32 + row;
            uint32_t enter = behind_enter, leave = 0;
            if (position < span.prefix) {
                enter = prefix_enter;
                leave = prefix_leave;
            } else if (position < span.tokens) {
                enter = enters[position - span.prefix] ^ negative;
                leave = leaves[position - span.prefix];
            }
            of_enter[0] = two_ones;
            of_enter[2] = enter;
            of_enter[3] = half;
            of_leave[1] = two_ones ^ negative;
            of_leave[2] = leave;
            of_leave[3] = half;
        });
    }

private:
    static uint32_t start(uint32_t which) {
        return get_write_ptr(config::cb_intervals) + which * config::max_nodes * sizeof(uint32_t);
    }
    static volatile tt_l1_ptr uint32_t* words(uint32_t which) {
        return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(start(which));
    }

    static constexpr uint32_t none = 0xFFFFFFFF;
    uint32_t tree_ = none;
    bool all_count_ = false;
    uint32_t counted_[config::speculate ? config::max_nodes / 32 : 1] = {};
};

// Clears all tiles, once, as the buffers' pointers stay at the start. The zeros are there after the barrier of reads.
inline void clear_tiles() {
    tile_masks::clear(get_write_ptr(config::cb_query_times), config::query_tiles() * tile_rows::tile_bytes);
    tile_masks::clear(
        get_write_ptr(config::cb_key_times), get_local_cb_interface(config::cb_key_times).fifo_size);
}

}  // namespace interval_tiles
