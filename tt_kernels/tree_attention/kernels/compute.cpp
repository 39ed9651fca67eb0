// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The compute kernel: attention of the query tiles of each job over this worker's keys, by online softmax. Every chunk
// of keys serves all query tiles of the job before it is popped. Then the merge with the partial results of other
// workers (merge_tree.hpp). With speculation its share of the guess and a merge of that come first; the reducer emits
// the guess, adds the rest to it, and measures the distance of guess and exact result.

#include <cstdint>

#include "api/compute/compute_kernel_hw_startup.h"
#include "config.hpp"
#include "jobs.hpp"
#include "steady_softmax.hpp"
#include "tile_merge.hpp"
#include "tt_kernels/common/kernels/attention_control.hpp"
#include "tt_kernels/common/kernels/guess_distance.hpp"
#include "tt_kernels/common/kernels/head_share.hpp"
#include "tt_kernels/common/kernels/partial_merge.hpp"
#include "tt_kernels/common/kernels/softmax_steps.hpp"

namespace {

using namespace online_softmax;

struct TreeStep : ChunkStep {
    uint8_t end_tile;     // of queries, of the job
    uint8_t unmasked;     // its first key tiles, which all nodes see
    uint8_t root, roots;  // the first row of its query tile whose masses count, and how many do
};

// Hides keys from queries by the times of both (interval_tiles.hpp).
struct IntervalMask {
    uint32_t tile;
    Bands bands;

    void multiply(uint32_t key_tile, uint32_t at) const {
        cb_wait_front(config::cb_query_times, tile + 1);
        cb_wait_front(config::cb_key_times, 2 * config::tree_tiles());
        reconfig_data_format<SrcOrder::Reverse>(config::cb_query_times, config::cb_key_times);
        matmul_tiles(config::cb_query_times, config::cb_key_times, tile, 2 * key_tile, at + 1);
        matmul_tiles(config::cb_query_times, config::cb_key_times, tile, 2 * key_tile + 1, at + 2);
        reconfig_data_format<SrcOrder::Reverse>(config::cb_query, config::cb_keys);
    }
    void hide(uint32_t at) const { register_rows::hide(at, bands); }
};

// The state of one job on this core: for each of its query tiles what online_softmax.hpp describes, in turn in cb_state
// and in one of the two buffers of row maxima.
struct State : Steps<TreeStep, State> {
    static constexpr uint32_t masses = config::hands_out_masses ? config::cb_masses : mass_columns::none;
    static constexpr bool emits_at_once = false;
    static uint32_t slots() { return config::query_tiles(); }
    static uint32_t scale() { return RUNTIME_ARG(scale); }

    static mass_columns::Rows mass_rows(const TreeStep& step) {
        return {step.root, step.roots, config::nodes()};
    }

    bool handed_over = false;  // the state before, which the writer may still be reading

    // Takes the key tiles of `range`, as many at a time as the buffers hold. emits: the state after it is the guess. Not
    // inlined, like others here, as a kernel's code must stay small.
    __attribute__((noinline)) void attend(
        const jobs::Job& job, const jobs::Span& span, const attention::Range& range, bool emits) {
        jobs::for_each_chunk(range, [&](const attention::Range& chunk) {
            [[maybe_unused]] jobs::Roots roots;
            for (uint32_t tile = 0; tile < job.tiles(); ++tile) {
                TreeStep step{};
                step.tile = tile;
                step.rows = chunk.size();
                step.set_bands(register_rows::bands_of(0, job.rows_of(tile)));
                step.last = tile + 1 == job.tiles();
                if constexpr (config::speculate) {
                    step.emits = emits && chunk.end == range.end;
                    step.end_tile = job.tiles();
                }
                step.unmasked = span.unmasked(chunk);
                if constexpr (config::hands_out_masses) {
                    const mass_columns::Rows rows = roots.next();
                    step.root = rows.first;
                    step.roots = rows.count;
                }
                take(step);
            }
        });
    }

    // The same for all keys of a job, by steady_softmax.hpp.
    __attribute__((noinline)) void attend_steadily(
        const jobs::Job& job, const jobs::Span& span, const attention::Range& range) {
        const uint32_t tiles = config::query_tiles();
        swap_row_maxima();
        empty = false;
        steady_softmax::begin(row_max(), scale());
        steady_softmax::Step steps[2];
        uint32_t taken = 0;
        const auto take = [&](const steady_softmax::Step& next) {
            const steady_softmax::Step* before = taken > 0 ? &steps[(taken + 1) % 2] : nullptr;
            steady_softmax::take<IntervalMask>(before, next);
            ++taken;
        };
        jobs::for_each_chunk(range, [&](const attention::Range& chunk) {
            const uint32_t unmasked = span.unmasked(chunk);
            for (uint32_t tile = 0; tile < tiles; ++tile) {
                const attention::Range seen =
                    span.seen(job.first_row + tile * 32);  // of which the last ones are masked
                if (seen.end <= chunk.begin) {
                    continue;
                }
                steady_softmax::Step& next = steps[taken % 2];
                next.tile = tile;
                next.rows = attention::min(seen.end - chunk.begin, chunk.size());
                next.masked_from =
                    seen.begin <= chunk.begin ? 0 : attention::min(seen.begin - chunk.begin, chunk.size());
                next.times_from = unmasked;
                next.first = chunk.begin == 0;
                next.last = tile + 1 == tiles;
                take(next);
            }
            pop_chunk(config::cb_keys, config::key_tiles() * head_tiles);
            if (unmasked < chunk.size()) {
                cb_pop_front(config::cb_key_times, 2 * config::tree_tiles());
            }
        });
        take({});
        cb_push_back(config::cb_state, tiles * config::partial_tiles);
    }

    // The first state of a job is packed beside the last ones handed over, what follows in their place.
    void before_raise(const TreeStep& step) {
        if (!step.first || step.tile > 0) {
            await_handover();
        }
    }

    void await_handover() {
        if (handed_over) {
            cb_reserve_back(config::cb_handover, config::query_tiles());
            handed_over = false;
        }
    }

    // The result of a query tile whose state is that from tile `first` of its buffer. The same into `copy`, if
    // there is one.
    static __attribute__((noinline)) void emit_tile(uint32_t first, Bands bands, uint32_t to, uint32_t copy) {
        normalise_init(to);
        normalise(first, bands, to, copy);
    }

    // The guess of a query tile, whose state is the newest of those that take turns in their buffer.
    static void emit(const TreeStep& step) {
        emit_guess(step.first ? step.tile : step.end_tile - 1u, step.bands());
    }

    // The guess of a query tile with so many states before its own.
    static __attribute__((noinline)) void emit_guess(uint32_t before, Bands bands) {
        cb_wait_front(config::cb_state, (before + 1) * config::partial_tiles);
        [[maybe_unused]] uint32_t first = before * config::partial_tiles;
        UNPACK(({
            const auto& buffer = get_local_cb_interface(config::cb_state);
            if (buffer.fifo_rd_ptr + first * buffer.fifo_page_size >= buffer.fifo_limit) {
                first -= (config::query_tiles() + 1) * config::partial_tiles;
            }
        }));
        emit_tile(first, bands, config::cb_guess, no_copy);
    }

    // Those of all query tiles, whose merged states go on with the rest.
    __attribute__((noinline)) void emit_guesses(const jobs::Job& job) {
        cb_wait_front(row_max(), config::query_tiles());
        for (uint32_t tile = 0; tile < job.tiles(); ++tile) {
            emit_guess(tile, register_rows::bands_of(0, job.rows_of(tile)));
            tile_merge::lay_out(row_max(), tile, 0, job.rows_of(tile));
        }
    }

    // A function of its own, as the stages are: in one, the compiler would keep the vector constants of both in
    // registers, which are too few.
    static __attribute__((noinline)) void score(const TreeStep& step) {
        cb_wait_front(config::cb_query, (step.tile + 1) * head_tiles);
        score_masked(step.tile * head_tiles, step.rows, step.unmasked, IntervalMask{step.tile, step.bands()});
        if (step.last) {
            pop_chunk(config::cb_keys, config::key_tiles() * head_tiles);
            if (step.unmasked < step.rows) {
                cb_pop_front(config::cb_key_times, 2 * config::tree_tiles());
            }
        }
    }

    // Merges what arrives in the slots of `sources`, level by level; a worker without a part of its own takes over the
    // first.
    __attribute__((noinline)) void receive(const jobs::Job& job, uint32_t sources) {
        if (sources == 0) {
            return;
        }
        partial_merge::for_each_level(sources, [&](uint32_t slots, bool) {
            await_handover();
            if (config::speculate && empty) {
                adopt(job, partial_merge::first_of(slots));
                slots &= slots - 1;
                if (slots == 0) {
                    return;
                }
            }
            for (uint32_t tile = 0; tile < job.tiles(); ++tile) {
                cb_wait_front(config::cb_state, config::partial_tiles);
                cb_wait_front(row_max(), 1);
                tile_merge::merge(
                    tile_merge::sources_of(slots, tile), row_max(), other_row_max(),
                    register_rows::bands_of(0, job.rows_of(tile)), scale());
            }
            merged_row_maxima(job);
        });
    }

    void adopt(const jobs::Job& job, uint32_t slot) {
        for (uint32_t tile = 0; tile < job.tiles(); ++tile) {
            tile_merge::adopt(slot * config::query_tiles() + tile, other_row_max());
        }
        if (const uint32_t rest = config::query_tiles() - job.tiles(); rest > 0) {
            cb_reserve_back(other_row_max(), rest);
            cb_push_back(other_row_max(), rest);
        }
        swap_row_maxima();
        empty = false;
    }

    // The maxima of all tiles of the job have moved to the other buffer; by query_tiles, as in Steps.
    void merged_row_maxima(const jobs::Job& job) {
        if (const uint32_t rest = config::query_tiles() - job.tiles(); rest > 0) {
            cb_wait_front(row_max(), rest);
            cb_pop_front(row_max(), rest);
            cb_reserve_back(other_row_max(), rest);
            cb_push_back(other_row_max(), rest);
        }
        swap_row_maxima();
    }

    // A page for each tile of a slot; those that the job has not repeat its last. drops: the states are done with.
    __attribute__((noinline)) void hand_over(const jobs::Job& job, bool drops = true) {
        const uint32_t tiles = job.tiles();
        for (uint32_t page = 0; page < config::query_tiles(); ++page) {
            const uint32_t tile = page < tiles ? page : tiles - 1;
            tile_merge::hand_over(row_max(), tiles - 1 - tile, config::query_tiles() - 1 - tile);
        }
        handed_over = true;
        if (drops) {
            for (uint32_t tile = 0; tile < tiles; ++tile) {
                cb_wait_front(config::cb_state, config::partial_tiles);
                cb_pop_front(config::cb_state, config::partial_tiles);
            }
            drop_row_maxima();
        }
    }

    void drop_row_maxima() {
        cb_wait_front(row_max(), config::query_tiles());
        cb_pop_front(row_max(), config::query_tiles());
        empty = true;
    }

    // Returns, on the unpacker's thread and of a prefill, whether a row sum is out of the range of steady_softmax.hpp.
    __attribute__((noinline)) bool emit_results(const jobs::Job& job) {
        bool failed = false;
        for (uint32_t tile = 0; tile < job.tiles(); ++tile) {
            cb_wait_front(config::cb_state, config::partial_tiles);
            if constexpr (config::prefills) {
                failed = steady_softmax::out_of_range() || failed;
            }
            emit_tile(
                0, register_rows::bands_of(0, job.rows_of(tile)), config::cb_output,
                config::speculate ? config::cb_measured_exact : no_copy);
            cb_pop_front(config::cb_state, config::partial_tiles);
            if (config::speculate && tile > 0) {  // while the writer prepares this one
                measure(job, tile - 1);
            }
        }
        if constexpr (config::speculate) {
            measure(job, job.tiles() - 1);
        }
        drop_row_maxima();
        return failed;
    }

    // What the writer prepared of a query tile: its guess and its exact result, zeros in rows that do not count.
    static __attribute__((noinline)) void measure(const jobs::Job& job, uint32_t tile) {
        // Until the next registers are free the packer's thread may drive the vector unit, which measures.
        tile_regs_acquire();
        tile_regs_commit();
        tile_regs_wait();
        tile_regs_release();
        reconfig_data_format(config::cb_measured_guess, config::cb_measured_exact);
        pack_reconfig_data_format(config::cb_norms);
        guess_distance::measure<head_tiles>(
            config::cb_measured_guess, config::cb_measured_exact, config::cb_norms,
            register_rows::bands_of(0, job.rows_of(tile)), RUNTIME_ARG(threshold_sq));
    }
};

}  // namespace

void kernel_main() {
    const uint32_t group = RUNTIME_ARG(group), groups = RUNTIME_ARG(groups), worker = RUNTIME_ARG(worker);

    cb_wait_front(config::cb_control, 1);
    if (read_tile_value(config::cb_control, 0, control::receiving)) {
        return;
    }
    compute_kernel_hw_startup<SrcOrder::Reverse>(config::cb_query, config::cb_keys, config::cb_scores);
    cb_wait_front(config::cb_ones, 1);
    if constexpr (config::prefills) {
        cb_wait_front(steady_softmax::cache_ones, 1);
    }

    const bool reduces = worker == attention::reducer;
    State state;
    for (steady_softmax::Turns turns(group, groups, jobs::count()); turns.next();) {
        const uint32_t index = turns.job();
        const jobs::Job job = jobs::job_of(index);
        const uint32_t word = read_tile_value(config::cb_control, 0, jobs::control_word(job.tree));
        const uint32_t own = jobs::own_tokens(word, job.tree);
        if (own == 0) {
            if constexpr (config::prefills) {
                steady_softmax::note(turns.round(), false);
            }
            continue;
        }
        const jobs::Span span = jobs::span_of(own);
        const attention::Share share = head_share::take();
        const attention::Part& part = share.part;
        if constexpr (config::speculate) {
            const bool emits = reduces && share.guess_sources == 0;  // in its turn
            state.attend(job, span, part.first, emits && part.last.size() == 0);
            state.attend(job, span, part.last, emits);
            if (!emits && share.sends_guess) {
                state.finish();
                state.receive(job, share.guess_sources);
                if (reduces) {
                    state.emit_guesses(job);
                } else {
                    state.hand_over(job);
                }
            }
        }
        if (config::prefills && !turns.again()) {
            state.attend_steadily(job, span, part.middle);
        } else {
            state.attend(job, span, part.middle, false);
            if (!state.empty) {
                state.finish();
            }
        }
        if (part.tiles() > 0) {
            pop_chunk(config::cb_query, config::query_tiles() * head_tiles);
        }
        if (span.masks(part)) {
            cb_pop_front(config::cb_query_times, config::query_tiles());
        }
        if constexpr (!config::prefills) {
            state.receive(job, share.sources);
        }
        if (config::prefills || reduces) {
            if constexpr (config::hands_out_masses) {
                state.hand_over(job, false);  // its row sums and maxima are what masses are relative to
            }
            const bool failed = state.emit_results(job);
            if (config::prefills && !turns.again()) {
                steady_softmax::note(turns.round(), failed);
            }
        } else if constexpr (!config::prefills) {
            if (!state.empty) {
                state.hand_over(job);
            }
        }
    }
}
