// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Merges partial results that are states of online_softmax.hpp, one for each query tile of a job; for the compute kernel.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "tt_kernels/common/kernels/merge_tree.hpp"
#include "tt_kernels/common/kernels/online_softmax.hpp"
#include "tt_kernels/common/kernels/partial_merge.hpp"
#include "tt_kernels/common/kernels/register_rows.hpp"

namespace tile_merge {

using online_softmax::Bands, online_softmax::rescale, online_softmax::state;
constexpr uint32_t tiles = config::partial_tiles;
// Partial results from other workers, and a float32 tile each, used within a merge.
constexpr uint32_t gathered = config::cb_gathered, gathered_row_max = config::cb_gathered_row_max;
constexpr uint32_t rescale_other = config::cb_rescale_other;

// Partial results that are merged at once, of one query tile: numbers of those received, in `received` as tiles of
// gathered_row_max.
struct Sources {
    uint32_t received[merge_tree::senders];
    uint32_t count;
};

// merged_row_max = the highest of `row_max` and the received row maxima, of each row. The rescales = the factors that
// bring all partial results to it. Pops `row_max`.
inline void merge_row_max(
    const Sources& from, uint32_t row_max, uint32_t merged_row_max, Bands bands, uint32_t scale) {
    cb_reserve_back(merged_row_max, 1);
    cb_reserve_back(rescale, 1);
    cb_reserve_back(rescale_other, merge_tree::senders);
    reconfig_data_format_srca(row_max);
    copy_init(row_max);
    register_rows::rescales_init();
    pack_reconfig_data_format(merged_row_max);
    tile_regs_acquire();
    constexpr uint32_t most = merge_tree::senders + 1;
    for (uint32_t i = 0; i < most - from.count; ++i) {  // its own in place of those that are missing
        copy_tile(row_max, 0, i == 0 ? 0 : most - i);
    }
    for (uint32_t i = 0; i < from.count; ++i) {
        copy_tile(gathered_row_max, from.received[i], i + 1);
    }
    tile_regs_commit();
    cb_pop_front(row_max, 1);
    tile_regs_wait();
    register_rows::highest_of<most>(bands);
    register_rows::finish();
    pack_tile<true>(0, merged_row_max, 0);
    register_rows::rescales_of(from.count + 1, bands, scale);
    register_rows::finish();
    pack_reconfig_data_format(rescale);
    pack_tile<true>(0, rescale, 0);
    for (uint32_t i = 0; i < from.count; ++i) {
        pack_tile<true>(i + 1, rescale_other, i);
    }
    tile_regs_release();
    cb_push_back(rescale, 1);
    cb_push_back(rescale_other, merge_tree::senders);
    cb_push_back(merged_row_max, 1);
}

// Merges received partial results into the state at the front of its buffer, which is popped and pushed again, as its row
// maximum is from `row_max` to `merged_row_max`. They have been waited for.
inline void merge(
    const Sources& from, uint32_t row_max, uint32_t merged_row_max, Bands bands, uint32_t scale) {
    merge_row_max(from, row_max, merged_row_max, bands, scale);
    cb_reserve_back(state, tiles);
    reconfig_data_format(state, rescale);
    mul_bcast_cols_init(state, rescale);
    cb_wait_front(rescale, 1);
    cb_wait_front(rescale_other, merge_tree::senders);
    for (uint32_t begin = 0; begin < tiles; begin += online_softmax::registers) {
        const uint32_t batch = online_softmax::at_most_registers(tiles - begin);
        tile_regs_acquire();
        for (uint32_t i = 0; i < batch; ++i) {
            mul_tiles_bcast_cols(state, rescale, begin + i, 0, i);
            for (uint32_t other = 0; other < from.count; ++other) {
                mul_tiles_bcast_cols(
                    gathered, rescale_other, from.received[other] * tiles + begin + i, other, i);
            }
        }
        online_softmax::pack_registers(state, begin, batch);
    }
    cb_pop_front(state, tiles);
    cb_push_back(state, tiles);
    cb_pop_front(rescale, 1);
    cb_pop_front(rescale_other, merge_tree::senders);
    cb_wait_front(state, tiles);
    cb_wait_front(merged_row_max, 1);
}

// For a worker that has nothing of its own: the state = the received partial result `index`.
inline void adopt(uint32_t index, uint32_t row_max) {
    online_softmax::copy_tiles(gathered, index * tiles, tiles, state);
    online_softmax::copy_tiles(gathered_row_max, index, 1, row_max);
    cb_wait_front(state, tiles);
    cb_wait_front(row_max, 1);
}

// Lays the row maxima of rows [begin, end) in tile `index` of `row_max` out side by side, where raise_row_max() goes on from
// them: a merge leaves them in column 0 alone. Those of other rows become the lowest. They have been waited for.
inline void lay_out(
    [[maybe_unused]] uint32_t row_max,
    [[maybe_unused]] uint32_t index,
    [[maybe_unused]] uint32_t begin,
    [[maybe_unused]] uint32_t end) {
    UNPACK(({
        constexpr uint32_t lowest = 0xFF00, rows = tile_rows::face_rows;
        const uint32_t tile =
            (get_local_cb_interface(row_max).fifo_rd_ptr << 4) + index * tile_rows::tile_bytes;
        const auto at = [&](uint32_t row) { return tile + mass_columns::row_offset(row) / 2; };
        for (uint32_t first = 0; first < 2 * rows; first += rows) {
            for (uint32_t pair = 0; pair < rows; pair += 2) {
                const auto maximum = [&](uint32_t row) -> uint32_t {
                    return row >= begin && row < end
                               ? *reinterpret_cast<volatile tt_l1_ptr uint16_t*>(at(row))
                               : lowest;
                };
                // Row `first` has its own in both places.
                const uint32_t both = maximum(first + pair) | maximum(first + pair + 1) << 16;
                volatile tt_l1_ptr uint32_t* const to =
                    reinterpret_cast<volatile tt_l1_ptr uint32_t*>(at(first) + 2 * pair);
                *to = both;
                (void)*to;  // read back: it has reached L1
            }
        }
    }));
}

// What has arrived in `slots`, for query tile `tile`.
inline Sources sources_of(uint32_t slots, uint32_t tile) {
    Sources found{{}, 0};
    for (; slots != 0; slots &= slots - 1) {
        found.received[found.count++] = partial_merge::first_of(slots) * config::partials() + tile;
    }
    return found;
}

// Hands over a state and its row maximum: the last ones pushed before `states_since` and `row_maxima_since` further ones.
inline void hand_over(uint32_t row_max, uint32_t states_since, uint32_t row_maxima_since) {
    partial_merge::hand_over(
        partial_merge::Pushed{state, tiles, states_since},
        partial_merge::Pushed{row_max, 1, row_maxima_since});
}

}  // namespace tile_merge
