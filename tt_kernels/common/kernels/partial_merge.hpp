// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Merges the partial results of the workers of a head, for compute kernels: states of online_softmax.hpp, received in
// slots by partial_link.hpp. One slot holds a partial result for each query tile of a head.

#pragma once

#include <cstdint>

#include "online_softmax.hpp"
#include "register_rows.hpp"

namespace partial_merge {

using online_softmax::Bands;

// The circular buffers of a merge. gathered: partial results from other workers, gathered_row_max their row maxima.
// rescale, rescale_other: a float32 tile each, used within a merge.
struct Buffers {
    uint32_t gathered;
    uint32_t gathered_row_max;
    uint32_t rescale;
    uint32_t rescale_other;
};

// merged_row_max = the higher of `row_max` and the received row maximum `index`, of each row. The two rescales = the
// factors that bring both partial results to it, of which one is 1. Pops `row_max`.
inline void merge_row_max(
    const Buffers& buffers,
    uint32_t index,
    uint32_t row_max,
    uint32_t merged_row_max,
    Bands bands,
    uint32_t scale) {
    cb_reserve_back(merged_row_max, 1);
    cb_reserve_back(buffers.rescale, 1);
    cb_reserve_back(buffers.rescale_other, 1);
    reconfig_data_format_srca(row_max);
    copy_init(row_max);
    register_rows::rescales_of_two_init();
    pack_reconfig_data_format(merged_row_max);
    tile_regs_acquire();
    copy_tile(row_max, 0, 0);
    copy_tile(buffers.gathered_row_max, index, 1);
    tile_regs_commit();
    cb_pop_front(row_max, 1);
    tile_regs_wait();
    register_rows::rescales_of_two(bands, scale);
    register_rows::finish();
    pack_tile<true>(register_rows::merged_maximum, merged_row_max, 0);
    pack_reconfig_data_format(buffers.rescale);
    pack_tile<true>(0, buffers.rescale, 0);
    pack_tile<true>(1, buffers.rescale_other, 0);
    tile_regs_release();
    cb_push_back(buffers.rescale, 1);
    cb_push_back(buffers.rescale_other, 1);
    cb_push_back(merged_row_max, 1);
}

// Merges the received partial result `index` into the state at the front of `state`, which is popped and pushed again,
// as its row maximum is from `row_max` to `merged_row_max`. The partial result has been waited for.
template <uint32_t head_tiles>
inline void merge(
    const Buffers& buffers,
    uint32_t index,
    uint32_t state,
    uint32_t row_max,
    uint32_t merged_row_max,
    Bands bands,
    uint32_t scale) {
    constexpr uint32_t tiles = head_tiles + 1;
    merge_row_max(buffers, index, row_max, merged_row_max, bands, scale);
    cb_reserve_back(state, tiles);
    reconfig_data_format(state, buffers.rescale);
    mul_bcast_cols_init(state, buffers.rescale);
    cb_wait_front(buffers.rescale, 1);
    cb_wait_front(buffers.rescale_other, 1);
    for (uint32_t begin = 0; begin < tiles; begin += online_softmax::registers) {
        const uint32_t batch = online_softmax::at_most_registers(tiles - begin);
        tile_regs_acquire();
        for (uint32_t i = 0; i < batch; ++i) {
            mul_tiles_bcast_cols(state, buffers.rescale, begin + i, 0, i);
            mul_tiles_bcast_cols(buffers.gathered, buffers.rescale_other, index * tiles + begin + i, 0, i);
        }
        online_softmax::pack_registers(state, begin, batch);
    }
    cb_pop_front(state, tiles);
    cb_push_back(state, tiles);
    cb_pop_front(buffers.rescale, 1);
    cb_pop_front(buffers.rescale_other, 1);
    cb_wait_front(state, tiles);
    cb_wait_front(merged_row_max, 1);
}

// For a worker that has nothing of its own: the state = the received partial result `index`.
template <uint32_t head_tiles>
inline void adopt(const Buffers& buffers, uint32_t index, uint32_t state, uint32_t row_max) {
    constexpr uint32_t tiles = head_tiles + 1;
    online_softmax::copy_tiles(buffers.gathered, index * tiles, tiles, state);
    online_softmax::copy_tiles(buffers.gathered_row_max, index, 1, row_max);
    cb_wait_front(state, tiles);
    cb_wait_front(row_max, 1);
}

// The addresses of a state that is handed over, in a page of a circular buffer that the data movement kernel reads.
struct Handover {
    uint32_t state;
    uint32_t row_max;
};

#if defined(TRISC_PACK)
// The address of the last `tiles` tiles pushed into `cb` before the last `since` times as many.
inline uint32_t address_of_last(uint32_t cb, uint32_t tiles, uint32_t since) {
    const auto& buffer = get_local_cb_interface(cb);
    uint32_t at = buffer.fifo_wr_ptr - (since + 1) * tiles * buffer.fifo_page_size;
    if (at < buffer.fifo_limit - buffer.fifo_size) {
        at += buffer.fifo_size;
    }
    return at << 4;
}
#endif

// Tells the data movement kernel, by a page of `handover`, where a state and row maximum are: the last ones pushed
// before `states_since` and `row_maxima_since` further ones. Until that kernel has popped the page (cb_reserve_back of
// all pages but those pushed since), nothing may be packed there.
template <uint32_t head_tiles>
inline void hand_over(
    [[maybe_unused]] uint32_t state,
    [[maybe_unused]] uint32_t row_max,
    uint32_t handover,
    [[maybe_unused]] uint32_t states_since = 0,
    [[maybe_unused]] uint32_t row_maxima_since = 0) {
    cb_reserve_back(handover, 1);
    PACK(({
        volatile tt_l1_ptr Handover* page =
            reinterpret_cast<volatile tt_l1_ptr Handover*>(get_local_cb_interface(handover).fifo_wr_ptr << 4);
        page->state = address_of_last(state, head_tiles + 1, states_since);
        page->row_max = address_of_last(row_max, 1, row_maxima_since);
        (void)page->row_max;  // read back: both have reached L1
    }));
    cb_push_back(handover, 1);
}

}  // namespace partial_merge
