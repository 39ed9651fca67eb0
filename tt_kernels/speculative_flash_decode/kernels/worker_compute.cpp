// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's compute kernel (ALSpec paper, algorithm 3): its share of the guess, which is merged with those of other
// workers (merge_tree.hpp); then its share of the rest, which the worker that has merged the guess adds to it and the
// others merge anew. For each chunk of keys K and values V, with queries Q and the online-softmax state (m, l, O) of the
// chunks before:
//
//     S = Q K^T;   m' = max(m, rowmax S);   P = exp(scale (S - m'));   r = exp(scale (m - m'))
//     l = r l + rowsum P;   O = r O + P V;   at the end the result is O / l
//
// In the buffers: S `scores`, m `row_max`, P `weights`, r `rescale`, (O, l) `state`.

#include <cstdint>

#include "api/compute/compute_kernel_hw_startup.h"
#include "config.hpp"
#include "probe_rows.hpp"
#include "tt_kernels/common/kernels/attention_control.hpp"
#include "tt_kernels/common/kernels/head_share.hpp"
#include "tt_kernels/common/kernels/partial_merge.hpp"
#include "tt_kernels/common/kernels/softmax_steps.hpp"

namespace {

using attention::Range;
using namespace online_softmax;

// The first row with the queries of this item's head.
uint32_t first_row_of(uint32_t item) { return item % config::kv_heads() * config::group_heads(); }

struct MaskedStep : ChunkStep {
    bool masked;  // whether its last key tile is
};

// The state of one head's attention on this core; see online_softmax.hpp.
struct State : Steps<MaskedStep, State> {
    static constexpr uint32_t masses = config::hands_out_masses ? config::cb_masses : mass_columns::none;
    static constexpr bool emits_at_once = true;
    static constexpr uint32_t slots() { return 1; }
    static uint32_t scale() { return RUNTIME_ARG(scale); }

    uint32_t first_row = 0;  // of the head
    // Bands of 4 rows (register_rows.hpp) that hold the head's queries: all that is sent of a result.
    Bands bands{0, 0};
    bool broken = false;       // known to the packer's thread: NaN or infinity in a key (probe_rows.hpp)
    bool handed_over = false;  // the state before, which the writer may still be reading

    // Takes the key tiles of `range`, as many at a time as the buffers hold. emits: the state after it is emitted. Not
    // inlined, like others here, as a kernel's code must stay small.
    __attribute__((noinline)) void attend(const Range& range, uint32_t tokens, bool emits) {
        for (uint32_t begin = range.begin; begin < range.end; begin += config::key_tiles()) {
            const uint32_t end = attention::min(begin + config::key_tiles(), range.end);
            MaskedStep step{};
            step.rows = end - begin;
            step.set_bands(bands);
            step.last = true;
            step.emits = emits && end == range.end;
            step.masked = attention::ends_partly(end, tokens);
            take(step);
        }
    }

    // A function of its own, as the stages are: in one, the compiler would keep the vector constants of both in
    // registers, which are too few.
    static __attribute__((noinline)) void score(const MaskedStep& step) {
        online_softmax::score(config::cb_mask, step.rows, step.masked);
        pop_chunk(config::cb_keys, config::key_tiles() * head_tiles);
    }

    void before_raise(const MaskedStep& step) {
        if (!step.first) {
            await_handover();
        }
    }

    uint32_t end_row() const { return first_row + config::group_heads(); }
    mass_columns::Rows mass_rows(const MaskedStep&) const { return {first_row, config::group_heads(), 1}; }

    static __attribute__((noinline)) void emit(uint32_t to, Bands bands, bool broken) {
        normalise_init(to);
        normalise(0, bands, to, broken);
    }

    void emit(const MaskedStep& step) {
        emit(
            config::cb_guess, bands,
            probe_rows::mark(step.to_b ? config::cb_row_max_b : config::cb_row_max_a, first_row, end_row()));
    }

    // The first state of a head is packed beside the last one handed over, what follows in its place.
    void await_handover() {
        if (handed_over) {
            cb_reserve_back(config::cb_handover, 1);
            handed_over = false;
        }
    }

    // Merges the partial results received in `slots`.
    void receive(uint32_t slots) {
        if (empty) {
            partial_merge::adopt(partial_merge::first_of(slots), other_row_max());
            swap_row_maxima();
            empty = false;
            slots &= slots - 1;
        }
        if (slots != 0) {
            await_handover();
            partial_merge::merge(
                partial_merge::sources_of(slots, 1, 0), row_max(), other_row_max(), bands, scale());
            swap_row_maxima();
        }
    }

    // Ends what this worker has attended to and merges what arrives in the slots of `sources`. reduces: it is the last to
    // merge, and must know whether the result is broken.
    void end_part(bool attended, uint32_t sources, bool reduces);

    void hand_over() {
        partial_merge::hand_over(row_max());
        handed_over = true;
    }

    void drop() {
        cb_pop_front(config::cb_state, config::partial_tiles);
        cb_pop_front(row_max(), 1);
        empty = true;
    }

    void hand_over_and_drop() {
        if (!empty) {
            hand_over();
            drop();
        }
    }
};

__attribute__((noinline)) void State::end_part(bool attended, uint32_t sources, bool reduces) {
    if (attended) {
        finish();
        broken = probe_rows::mark(row_max(), first_row, end_row());
    }
    if (sources == 0) {
        return;
    }
    partial_merge::for_each_level(sources, 1, [this](uint32_t slots) { receive(slots); });
    if (reduces) {
        broken = probe_rows::is_marked(row_max(), first_row, end_row());
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

    State state;
    const bool reduces = worker == attention::reducer;
    for (uint32_t item = group; item < config::items(); item += groups) {
        const uint32_t user = item / config::kv_heads();
        const uint32_t tokens = read_tile_value(config::cb_control, 0, control::first_tokens + user);
        if (tokens == 0) {
            continue;
        }
        const attention::Share share = head_share::take();
        const attention::Part& part = share.part;
        state.first_row = first_row_of(item);
        state.bands = register_rows::bands_of(state.first_row, state.first_row + config::group_heads());
        if (part.tiles() > 0) {
            cb_wait_front(config::cb_query, head_tiles);
        }
        const bool merges_guess = config::speculate && config::workers() > 1;
        const bool emits = config::speculate && !merges_guess;
        state.attend(part.first, tokens, emits && part.last.size() == 0);
        state.attend(part.last, tokens, emits);
        bool attended = part.guess_tiles() > 0;
        if (merges_guess) {
            state.end_part(attended, share.guess_sources, reduces);
            attended = false;
            if (reduces) {
                State::emit(config::cb_guess, state.bands, state.broken);
                if (share.guess_sources != 0) {
                    partial_merge::lay_out(state.row_max(), 0, state.first_row, state.end_row());
                }
            } else {
                state.hand_over_and_drop();
            }
        }
        state.attend(part.middle, tokens, false);
        state.end_part(attended || part.middle.size() > 0, share.sources, reduces);
        if (part.tiles() > 0) {
            cb_pop_front(config::cb_query, head_tiles);
        }
        if (reduces) {
            if constexpr (config::hands_out_masses) {
                state.hand_over();  // its row sums and maxima are what masses are relative to
            }
            State::emit(config::cb_exact, state.bands, state.broken);
            state.drop();
        } else {
            state.hand_over_and_drop();
        }
    }
}
