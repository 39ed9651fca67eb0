// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's compute kernel (ALSpec paper, algorithm 3): the guess first if this worker owns it, then its slice of the
// middle; then the merge with the partial results of other workers (merge_tree.hpp). For each chunk of keys K and
// values V, with queries Q and the online-softmax state (m, l, O) of the chunks before:
//
//     S = Q K^T;   m' = max(m, rowmax S);   P = exp(scale (S - m'));   r = exp(scale (m - m'))
//     l = r l + rowsum P;   O = r O + P V;   at the end the result is O / l
//
// In the buffers: S `scores`, m `row_max`, P `weights`, r `rescale`, (O, l) `state`.

#include <cstdint>

#include "api/compute/compute_kernel_hw_startup.h"
#include "config.hpp"
#include "control.hpp"
#include "probe_rows.hpp"
#include "tt_kernels/common/kernels/chunk_split.hpp"
#include "tt_kernels/common/kernels/merge_tree.hpp"
#include "tt_kernels/common/kernels/partial_merge.hpp"
#include "tt_kernels/common/kernels/softmax_steps.hpp"

namespace {

using attention::Range;
using namespace online_softmax;

constexpr uint32_t head_tiles = config::head_tiles;
constexpr partial_merge::Buffers merge_buffers{
    config::cb_gathered, config::cb_gathered_row_max, config::cb_rescale, config::cb_rescale_other};

uint32_t listed_of(uint32_t item) {
    if constexpr (config::followed) {
        const uint32_t word = read_tile_value(config::cb_control, 0, control::listed_word(item));
        return word >> control::listed_shift(item) & 0xff;
    }
    return 0;
}

// The first row with the queries of this item's head.
uint32_t first_row_of(uint32_t item) { return item % config::kv_heads() * config::rows_per_head(); }

struct MaskedStep : ChunkStep {
    bool masked;  // whether its last key tile is
};

// The state of one head's attention on this core; see online_softmax.hpp.
struct State : Steps<head_tiles, MaskedStep, State> {
    static constexpr Buffers buffers{config::cb_values,  config::cb_ones,  config::cb_scores,
                                     config::cb_weights, config::cb_state, config::cb_rescale};
    static constexpr uint32_t masses = config::hands_out_masses ? config::cb_masses : mass_columns::none;
    static constexpr bool emits_at_once = true;
    static constexpr uint32_t row_max_a = config::cb_row_max_a, row_max_b = config::cb_row_max_b;
    static uint32_t capacity() { return config::key_tiles(); }
    static constexpr uint32_t slots() { return 1; }
    static uint32_t scale() { return RUNTIME_ARG(scale); }

    uint32_t first_row = 0;  // of the head
    // Bands of 4 rows (register_rows.hpp) that hold the head's queries: all that is sent of a result.
    Bands bands{0, 0};
    bool broken = false;       // known to the packer's thread: NaN or infinity in a key (probe_rows.hpp)
    bool handed_over = false;  // the state before, which the writer may still be reading

    // Takes the key tiles of `range`, as many at a time as the buffers hold. ends_guess: the state after it is the guess.
    void attend(const Range& range, uint32_t tokens, bool ends_guess) {
        for (uint32_t begin = range.begin; begin < range.end; begin += config::key_tiles()) {
            const uint32_t end = attention::min(begin + config::key_tiles(), range.end);
            MaskedStep step{};
            step.rows = end - begin;
            step.set_bands(bands);
            step.last = true;
            step.emits = ends_guess && end == range.end;
            step.masked = attention::ends_partly(end, tokens);
            take(step);
        }
    }

    // A function of its own, as the stages are: in one, the compiler would keep the vector constants of both in
    // registers, which are too few.
    static __attribute__((noinline)) void score(const MaskedStep& step) {
        online_softmax::score<head_tiles>(
            config::cb_query, config::cb_keys, config::cb_ones, config::cb_mask, config::cb_scores, step.rows,
            config::key_tiles(), step.masked);
        pop_chunk(config::cb_keys, config::key_tiles() * head_tiles);
    }

    void before_raise(const MaskedStep& step) {
        if (!step.first) {
            await_handover();
        }
    }

    uint32_t end_row() const { return first_row + config::rows_per_head(); }

    static void emit(uint32_t to, Bands bands, bool broken) {
        normalise_init(config::cb_state, to);
        normalise<head_tiles>(config::cb_state, 0, bands, to, broken);
    }

    void emit(const MaskedStep& step) {
        emit(
            config::cb_guess, bands,
            probe_rows::mark(step.to_b ? row_max_b : row_max_a, first_row, end_row()));
    }

    // The first state of a head is packed beside the last one handed over, what follows in its place.
    void await_handover() {
        if (handed_over) {
            cb_reserve_back(config::cb_handover, 1);
            handed_over = false;
        }
    }

    // Merges the partial result received at `level`.
    void receive(uint32_t level) {
        if (empty) {
            partial_merge::adopt<head_tiles>(merge_buffers, level, config::cb_state, other_row_max());
        } else {
            await_handover();
            partial_merge::merge<head_tiles>(
                merge_buffers, level, config::cb_state, row_max(), other_row_max(), bands, scale());
        }
        swap_row_maxima();
        empty = false;
    }

    void hand_over() {
        partial_merge::hand_over<head_tiles>(config::cb_state, row_max(), config::cb_handover);
        handed_over = true;
    }

    void drop() {
        if (!empty) {
            cb_pop_front(config::cb_state, config::partial_tiles);
            cb_pop_front(row_max(), 1);
            empty = true;
        }
    }
};

// Merges what arrives at the levels in `sources`, in their order.
void receive_all(State& state, uint32_t sources) {
    if (sources == 0) {
        return;
    }
    const uint32_t levels = merge_tree::levels(config::workers());
    for (uint32_t level = 0; level < levels; ++level) {
        if (sources >> level & 1) {
            cb_wait_front(config::cb_gathered, (level + 1) * config::partial_tiles);
            cb_wait_front(config::cb_gathered_row_max, level + 1);
            state.receive(level);
        }
    }
    cb_wait_front(config::cb_gathered, levels * config::partial_tiles);
    cb_wait_front(config::cb_gathered_row_max, levels);
    cb_pop_front(config::cb_gathered, levels * config::partial_tiles);
    cb_pop_front(config::cb_gathered_row_max, levels);
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

    State state;
    for (uint32_t item = group; item < config::items(); item += groups) {
        const uint32_t user = item / config::kv_heads();
        const uint32_t tokens = read_tile_value(config::cb_control, 0, control::first_tokens + user);
        if (tokens == 0) {
            continue;
        }
        const uint32_t listed = listed_of(item);
        const auto part = control::part_of(tokens, listed, worker);
        const uint32_t sources = merge_tree::sources_of(worker, config::workers(), [&](uint32_t other) {
            return control::part_of(tokens, listed, other).tiles() > 0;
        });
        state.first_row = first_row_of(item);
        state.bands = register_rows::bands_of(state.first_row, state.first_row + config::rows_per_head());
        if (part.tiles() > 0) {
            cb_wait_front(config::cb_query, head_tiles);
            const bool guesses = config::speculate && worker == control::speculative_worker();
            state.attend(part.first, tokens, guesses && part.last.size() == 0);
            state.attend(part.last, tokens, guesses);
            if (guesses && config::workers() > 1) {
                state.finish();  // the guess leaves before the keys of the next steps are there
            }
            state.attend(part.middle, tokens, false);
            state.finish();
            state.broken = probe_rows::mark(state.row_max(), state.first_row, state.end_row());
            cb_pop_front(config::cb_query, head_tiles);
        }
        receive_all(state, sources);
        if (worker == attention::reducer) {
            if (sources != 0) {
                state.broken = probe_rows::is_marked(state.row_max(), state.first_row, state.end_row());
            }
            if constexpr (config::hands_out_masses) {
                state.hand_over();  // its row sums and maxima are what masses are relative to
            }
            State::emit(config::cb_exact, state.bands, state.broken);
        } else if (!state.empty) {
            state.hand_over();
        }
        state.drop();
    }
}
