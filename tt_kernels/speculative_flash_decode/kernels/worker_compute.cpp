// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's compute kernel (ALSpec paper, algorithm 3): the guess first where this worker owns it, then its slice
// of the middle; on the reducer the merge of all partial results.

#include <cstdint>

#include "api/compute/compute_kernel_hw_startup.h"
#include "config.hpp"
#include "control.hpp"
#include "tt_kernels/common/kernels/chunk_split.hpp"
#include "tt_kernels/common/kernels/online_softmax.hpp"

namespace {

using attention::Range;
using namespace online_softmax;

constexpr uint32_t head_tiles = config::head_tiles;

attention::Part part_of(uint32_t tokens, uint32_t worker) {
    return attention::part_of(tokens, config::guess(), worker, config::workers(), config::speculate);
}

// The bands of rows with the queries of this item's head: all that is sent on of a result.
Bands bands_of(uint32_t item) {
    const uint32_t row = item % config::kv_heads() * config::rows_a_head();
    return register_rows::bands_of(row, row + config::rows_a_head());
}

// The state of one head's attention on this core; see online_softmax.hpp.
struct State {
    uint32_t scale;
    Bands bands{0, 0};
    uint32_t row_max = config::cb_row_max_a;
    uint32_t other_row_max = config::cb_row_max_b;
    bool empty = true;

    void swap_row_maxima() {
        const uint32_t held = row_max;
        row_max = other_row_max;
        other_row_max = held;
    }

    // Attends to the key tiles of `range`, as many at a time as the buffers hold.
    void attend(const Range& range, uint32_t tokens) {
        for (uint32_t begin = range.begin; begin < range.end; begin += config::key_tiles()) {
            const uint32_t end = attention::least(begin + config::key_tiles(), range.end);
            attend_chunk(end - begin, attention::ends_partly(end, tokens));
        }
    }

    void attend_chunk(uint32_t rows, bool masked) {
        score<head_tiles>(
            config::cb_query, config::cb_keys, config::cb_ones, config::cb_mask, config::cb_scores, rows,
            config::key_tiles(), masked);
        cb_wait_front(config::cb_scores, config::key_tiles());
        raise_row_max(config::cb_scores, rows, config::cb_ones, row_max, empty, other_row_max);
        cb_wait_front(other_row_max, 1);
        weigh(config::cb_scores, other_row_max, config::cb_weights, rows, config::key_tiles(), bands, scale);
        if (!empty) {
            rescale_of(row_max, 0, other_row_max, config::cb_rescale, bands, scale);
            cb_pop_front(row_max, 1);
            cb_wait_front(config::cb_rescale, 1);
        }
        cb_wait_front(config::cb_weights, config::key_tiles());
        accumulate<head_tiles>(
            config::cb_weights, config::cb_values, config::cb_ones, config::cb_state, config::cb_rescale, empty, rows,
            config::key_tiles());
        if (!empty) {
            cb_pop_front(config::cb_rescale, 1);
        }
        cb_wait_front(config::cb_state, config::partial_tiles);
        swap_row_maxima();
        empty = false;
    }

    // Merges the partial result in slot `slot` of the gathered ones.
    void merge_slot(uint32_t slot) {
        cb_reserve_back(other_row_max, 1);
        reconfig_data_format_srca(row_max);
        copy_init(row_max);
        binary_max_tile_init();
        pack_reconfig_data_format(other_row_max);
        tile_regs_acquire();
        copy_tile(row_max, 0, 0);
        copy_tile(config::cb_gathered_row_max, slot, 1);
        binary_max_tile(0, 1, 0, VectorMode::C);
        pack_registers(other_row_max, 0, 1);
        cb_push_back(other_row_max, 1);

        cb_wait_front(other_row_max, 1);
        rescale_of(row_max, 0, other_row_max, config::cb_rescale, bands, scale);
        rescale_of(config::cb_gathered_row_max, slot, other_row_max, config::cb_rescale_other, bands, scale);
        cb_wait_front(config::cb_rescale, 1);
        cb_wait_front(config::cb_rescale_other, 1);
        merge<head_tiles>(
            config::cb_state, config::cb_rescale, config::cb_gathered, slot * config::partial_tiles,
            config::cb_rescale_other);
        cb_wait_front(config::cb_state, config::partial_tiles);
        cb_pop_front(config::cb_rescale, 1);
        cb_pop_front(config::cb_rescale_other, 1);
        cb_pop_front(row_max, 1);
        swap_row_maxima();
    }

    void send_to_reducer() {
        copy_tiles(config::cb_state, 0, config::partial_tiles, config::cb_partial);
        copy_tiles(row_max, 0, 1, config::cb_partial_row_max);
    }

    void drop() {
        if (!empty) {
            cb_pop_front(config::cb_state, config::partial_tiles);
            cb_pop_front(row_max, 1);
            empty = true;
        }
    }
};

void reduce_head(State& state, uint32_t tokens) {
    const uint32_t others = config::workers() - 1;
    if (others > 0) {
        cb_wait_front(config::cb_gathered, others * config::partial_tiles);
        cb_wait_front(config::cb_gathered_row_max, others);
    }
    if (state.empty) {
        // The guess was everything there is: its worker's partial result is the head's.
        normalise<head_tiles>(
            config::cb_gathered, (attention::speculative_worker(config::workers()) - 1) * config::partial_tiles,
            state.bands, config::cb_exact);
    } else {
        for (uint32_t slot = 0; slot < others; ++slot) {
            if (part_of(tokens, slot + 1).tiles() > 0) {
                state.merge_slot(slot);
            }
        }
        normalise<head_tiles>(config::cb_state, 0, state.bands, config::cb_exact);
    }
    if (others > 0) {
        cb_pop_front(config::cb_gathered, others * config::partial_tiles);
        cb_pop_front(config::cb_gathered_row_max, others);
    }
}

}  // namespace

void kernel_main() {
    const uint32_t group = RUNTIME_ARG(group), groups = RUNTIME_ARG(groups), worker = RUNTIME_ARG(worker);

    cb_wait_front(config::cb_control, 1);
    if (read_tile_value(config::cb_control, 0, control::receiving)) {
        return;
    }
    compute_kernel_hw_startup<SrcOrder::Reverse>(config::cb_query, config::cb_keys, config::cb_scores);
    cb_wait_front(config::cb_ones, 1);

    State state{RUNTIME_ARG(scale)};
    for (uint32_t item = group; item < config::items(); item += groups) {
        const uint32_t user = item / config::kv_heads();
        const uint32_t tokens = read_tile_value(config::cb_control, 0, control::first_tokens + user);
        if (tokens == 0) {
            continue;
        }
        const auto part = part_of(tokens, worker);
        state.bands = bands_of(item);
        if (part.tiles() > 0) {
            cb_wait_front(config::cb_query, head_tiles);
            state.attend(part.first, tokens);
            state.attend(part.last, tokens);
            if (config::speculate && worker == attention::speculative_worker(config::workers())) {
                normalise<head_tiles>(config::cb_state, 0, state.bands, config::cb_guess);
            }
            state.attend(part.middle, tokens);
            cb_pop_front(config::cb_query, head_tiles);
        }
        if (worker == attention::reducer) {
            reduce_head(state, tokens);
        } else if (part.tiles() > 0) {
            state.send_to_reducer();
        }
        state.drop();
    }
}
