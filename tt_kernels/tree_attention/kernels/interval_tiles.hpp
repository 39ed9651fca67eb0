// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The tree's mask as a product of two thin factors (FlashSpecInfer, section 5.1). Query r sees key c where
// enter[c] <= enter[r] and leave[c] >= leave[r]. With a tile of queries' times Q and two tiles of keys' times E and L,
//
//     Q @ E^T = enter[r] - enter[c] + 1/2      Q @ L^T = leave[c] - leave[r] + 1/2
//
// and c is hidden from r where either is negative. So the mask is computed from a few values a row by the matrix unit;
// no mask lies anywhere. Rows, behind which all is 0, in pairs of quotient times 16 and remainder by 16:
//
//     Q   enter     leave     1, 1      1, 0
//     E   1, 1      0, 0      -enter    1/2, 0
//     L   0, 0      -1, -1    leave     1/2, 0
//
// Times are below 256, so each part has four bits, which every math fidelity multiplies exactly; and no result is 0,
// whose sign would be the unit's affair.
// Tokens of the prefix have enter -1 and leave 256, so all see them; those behind the nodes enter at 512.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "jobs.hpp"
#include "packed_rows.hpp"
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

// A whole number below 256 as bfloat16; exact.
inline uint32_t bfloat16_of(uint32_t value) {
    if (value == 0) {
        return 0;
    }
    uint32_t exponent = 0;
    while (value >> (exponent + 1) != 0) {
        ++exponent;
    }
    return (127 + exponent) << 7 | ((value << (7 - exponent)) & 0x7F);
}

inline uint32_t parts_of(uint32_t time) { return bfloat16_of(time & 0xF0) | bfloat16_of(time & 0x0F) << 16; }

inline void set(uint32_t tile, uint32_t row, uint32_t word, uint32_t value) {
    reinterpret_cast<volatile tt_l1_ptr uint32_t*>(tile + packed_rows::offset_of(row))[word] = value;
}

// The times of one user's nodes in this core's L1, fetched when another user's turn comes.
class Times {
public:
    // Leaves both times of each node in parts, where they landed.
    template <typename Accessor>
    void fetch(uint32_t user, const Accessor& intervals) {
        if (user == user_) {
            return;
        }
        user_ = user;
        const uint32_t bytes = config::nodes() * sizeof(uint32_t);
        for (uint32_t which = 0; which < 2; ++which) {
            noc_async_read(intervals.get_noc_addr(2 * user + which), start(which), bytes);
        }
        noc_async_read_barrier();
        for (uint32_t which = 0; which < 2; ++which) {
            for (uint32_t node = 0; node < config::nodes(); ++node) {
                words(which)[node] = parts_of(words(which)[node]);
            }
        }
    }

    // The rows of query tile `tile` of `job`.
    void write_queries(uint32_t address, const jobs::Job& job, uint32_t tile) const {
        uint32_t node = (job.first_row + tile * 32) % config::nodes();
        for (uint32_t row = 0; row < job.rows_of(tile); ++row) {
            set(address, row, 0, words(0)[node]);
            set(address, row, 1, words(1)[node]);
            node = node + 1 == config::nodes() ? 0 : node + 1;
        }
    }

    // The rows of key tile `tile` of the cache, in two tiles: E and L.
    void write_keys(uint32_t address, const jobs::Span& span, uint32_t tile) const {
        for (uint32_t row = 0; row < 32; ++row) {
            const uint32_t position = tile * 32 + row;
            uint32_t enter = behind_enter, leave = 0;
            if (position < span.prefix) {
                enter = prefix_enter;
                leave = prefix_leave;
            } else if (position < span.tokens) {
                enter = words(0)[position - span.prefix] ^ negative;
                leave = words(1)[position - span.prefix];
            }
            set(address, row, 2, enter);
            set(address + tile_rows::tile_bytes, row, 2, leave);
        }
    }

private:
    static uint32_t start(uint32_t which) {
        return get_write_ptr(config::cb_intervals) + which * config::most_nodes * sizeof(uint32_t);
    }
    static volatile tt_l1_ptr uint32_t* words(uint32_t which) {
        return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(start(which));
    }

    uint32_t user_ = 0xFFFFFFFF;
};

// What tiles of times have in common; the buffers' pointers stay at the start, so once is enough.
inline void prepare() {
    const uint32_t queries = get_write_ptr(config::cb_query_times);
    const uint32_t keys = get_write_ptr(config::cb_key_times);
    tile_masks::clear(queries, config::query_tiles() * tile_rows::tile_bytes);
    tile_masks::clear(keys, 2 * config::tree_tiles() * tile_rows::tile_bytes);
    noc_async_read_barrier();
    for (uint32_t row = 0; row < 32; ++row) {
        for (uint32_t tile = 0; tile < config::query_tiles(); ++tile) {
            set(queries + tile * tile_rows::tile_bytes, row, 2, two_ones);
            set(queries + tile * tile_rows::tile_bytes, row, 3, one);
        }
        for (uint32_t tile = 0; tile < config::tree_tiles(); ++tile) {
            const uint32_t enters = keys + 2 * tile * tile_rows::tile_bytes;
            const uint32_t leaves = enters + tile_rows::tile_bytes;
            set(enters, row, 0, two_ones);
            set(leaves, row, 1, two_ones ^ negative);
            set(enters, row, 3, half);
            set(leaves, row, 3, half);
        }
    }
}

}  // namespace interval_tiles
