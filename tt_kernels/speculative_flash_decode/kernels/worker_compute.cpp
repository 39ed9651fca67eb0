// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's compute kernel (ALSpec paper, algorithm 3): its share of the guess, which is merged with those of other
// workers (merge_tree.hpp); then its share of the rest, with which the merged guess is merged too. For each chunk of keys K and values V, with queries Q and the online-softmax state (m, l, O) of the
// chunks before:
//
//     S = Q K^T;   m' = max(m, rowmax S);   P = exp(scale (S - m'));   r = exp(scale (m - m'))
//     l = r l + rowsum P;   O = r O + P V;   at the end the result is O / l
//
// In the buffers: S `scores`, m `row_max`, P `weights`, r `rescale`, (O, l) `state`, and all of the end `dense`.

#include <cstdint>

#include "api/compute/compute_kernel_hw_startup.h"
#include "config.hpp"
#include "dense_partials.hpp"
#include "probe_rows.hpp"
#include "tt_kernels/common/kernels/attention_control.hpp"
#include "tt_kernels/common/kernels/head_share.hpp"
#include "tt_kernels/common/kernels/partial_merge.hpp"
#include "tt_kernels/common/kernels/softmax_steps.hpp"

namespace {

using attention::Range;
using namespace online_softmax;

struct MaskedStep : ChunkStep {
    bool masked;  // whether its last key tile is
};

// The state of one head's attention on this core; see online_softmax.hpp.
struct State : Steps<MaskedStep, State> {
    static constexpr uint32_t masses = config::hands_out_masses ? config::cb_masses : mass_columns::none;
    static constexpr bool emits_at_once = true;
    static constexpr uint32_t slots() { return 1; }
    static uint32_t scale() { return RUNTIME_ARG(scale); }

    // Partial results of the head (dense_partials.hpp), each of one for every band of its queries: what is merged of it.
    uint32_t held = 0;
    dense_partials::Last next;
    bool handed_over = false;  // the partial result before, which the writer may still be reading

    static Bands bands() { return {0, config::partials()}; }

    // Takes the key tiles of `range`, as many at a time as the buffers hold. emits: the state after it is emitted. Not
    // inlined, like others here, as a kernel's code must stay small.
    __attribute__((noinline)) void attend(const Range& range, uint32_t tokens, bool emits) {
        for (uint32_t begin = range.begin; begin < range.end; begin += config::key_tiles()) {
            const uint32_t end = attention::min(begin + config::key_tiles(), range.end);
            MaskedStep step{};
            step.rows = end - begin;
            step.set_bands(bands());
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

    mass_columns::Rows mass_rows(const MaskedStep&) const { return {0, config::group_heads(), 1}; }

    void before_emission(uint32_t row_max) {
        if (config::partials() == 1) {
            make_dense(row_max, true);
        }
    }

    void emit(const MaskedStep& step) {
        if (config::partials() == 1) {
            hold_dense();
        } else {
            hold(step.to_b ? config::cb_row_max_b : config::cb_row_max_a);
        }
        dense_partials::merge_init();
        emit_held(1);
        drop();
    }

    // Holds the state as a partial result too.
    void hold(uint32_t row_max) {
        probe_rows::mark(row_max, config::group_heads());
        dense_partials::condense(row_max);
        ++held;
    }

    // Holds it in place of the state.
    __attribute__((noinline)) void end() {
        const bool adds = weigh_all();
        if (adds && config::partials() == 1) {
            make_dense(row_max(), false);
            add_last();
            hold_dense();
        } else {
            finish();
            hold(row_max());
            cb_pop_front(config::cb_state, config::partial_tiles);
        }
        cb_pop_front(row_max(), 1);
        empty = true;
    }

    // The next state becomes a dense partial result, or is one too; hold_dense() holds it then.
    void make_dense(uint32_t row_max, bool beside) {
        probe_rows::mark(row_max, config::group_heads());
        cb_reserve_back(dense_partials::dense, config::dense_pages);
        next = {row_max, beside};
    }
    void hold_dense() {
        next = {};
        cb_push_back(dense_partials::dense, config::dense_pages);
        ++held;
    }
    const dense_partials::Last& last() const { return next; }

    void await_handover() {
        if (handed_over) {
            cb_reserve_back(config::cb_handover, config::partials());
            handed_over = false;
        }
    }

    // One partial result in place of those that are held and those received in `slots`. results: how often its result is
    // emitted.
    __attribute__((noinline)) void merge(uint32_t slots, uint32_t results) {
        const uint32_t partials = config::partials(), own = held * partials * config::dense_pages;
        await_handover();
        cb_wait_front(dense_partials::dense, own);
        cb_reserve_back(config::cb_result, results * partials);
        for (uint32_t band = 0; band < partials; ++band) {
            dense_partials::Sources sources;
            for (uint32_t i = 0; i < held; ++i) {
                sources.add(dense_partials::dense, (i * partials + band) * config::dense_pages);
            }
            for (uint32_t left = slots; left != 0; left &= left - 1) {
                const uint32_t slot = partial_merge::first_of(left);
                sources.add(dense_partials::gathered, (slot * partials + band) * config::dense_pages);
            }
            dense_partials::merge(sources, scale(), results, band);
        }
        cb_push_back(config::cb_result, results * partials);
        cb_pop_front(dense_partials::dense, own);
        held = 1;
    }

    // Emits the result of what is held, `results` times, where there is nothing to merge it with.
    __attribute__((noinline)) void emit_held(uint32_t results) {
        const uint32_t partials = config::partials();
        cb_wait_front(dense_partials::dense, partials * config::dense_pages);
        cb_reserve_back(config::cb_result, results * partials);
        for (uint32_t band = 0; band < partials; ++band) {
            dense_partials::emit(band * config::dense_pages, results, band);
        }
        cb_push_back(config::cb_result, results * partials);
    }

    // Ends what this worker has attended to and merges what arrives in the slots of `sources`. results: how often it emits the
    // result, as the last to merge.
    void end_part(bool attended, uint32_t sources, uint32_t results);

    void hand_over() {
        for (uint32_t left = config::partials(); left-- > 0;) {
            partial_merge::hand_over(partial_merge::Pushed{dense_partials::dense, config::dense_pages, left});
        }
        handed_over = true;
    }

    void drop() {
        cb_wait_front(dense_partials::dense, config::partials() * config::dense_pages);
        cb_pop_front(dense_partials::dense, config::partials() * config::dense_pages);
        held = 0;
    }

    void hand_over_and_drop() {
        if (held > 0) {
            hand_over();
            drop();
        }
    }
};

__attribute__((noinline)) void State::end_part(bool attended, uint32_t sources, uint32_t results) {
    if (attended) {
        end();
    }
    if (held < 2 && results == 0 && sources == 0) {
        return;
    }
    dense_partials::merge_init();
    if (held > 1) {
        merge(0, sources == 0 ? results : 0);
    } else if (sources == 0) {
        emit_held(results);
    }
    if (sources != 0) {
        partial_merge::for_each_level(
            sources, [&](uint32_t slots, bool last) { merge(slots, last ? results : 0); });
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
        if (part.tiles() > 0) {
            cb_wait_front(config::cb_query, head_tiles);
        }
        const bool merges_guess = config::speculate && config::workers() > 1;
        const bool emits = config::speculate && !merges_guess;
        state.attend(part.first, tokens, emits && part.last.size() == 0);
        state.attend(part.last, tokens, emits);
        bool attended = part.guess_tiles() > 0;
        const bool goes_on = part.middle.size() > 0 || share.sources != 0;
        if (merges_guess) {
            state.end_part(attended, share.guess_sources, reduces ? (goes_on ? 1 : 2) : 0);
            attended = false;
            if (!reduces) {
                state.hand_over_and_drop();
            }
        }
        state.attend(part.middle, tokens, false);
        if (!merges_guess || goes_on) {  // else the guess is the exact result
            state.end_part(attended || part.middle.size() > 0, share.sources, reduces ? 1 : 0);
        }
        if (part.tiles() > 0) {
            cb_pop_front(config::cb_query, head_tiles);
        }
        if (reduces) {
            if constexpr (config::hands_out_masses) {
                state.hand_over();  // its row sums and maxima are what masses are relative to
            }
            state.drop();
        } else {
            state.hand_over_and_drop();
        }
    }
}
