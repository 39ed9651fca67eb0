// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The writer (BRISC): makes the constant tile and, for each job of its group, the times its mask is made of; then sends
// the partial result to the worker that merges it, or writes the rows of the result, and zeros where there is no node.
// With speculation before that the same of the guess, and at last what decides on it (measured_rows.hpp).

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "interval_tiles.hpp"
#include "jobs.hpp"
#include "measured_rows.hpp"
#include "packed_rows.hpp"
#include "steady_softmax.hpp"
#include "tt_kernels/common/kernels/cache_rows.hpp"
#include "tt_kernels/common/kernels/attention_control.hpp"
#include "tt_kernels/common/kernels/chosen_heads.hpp"
#include "tt_kernels/common/kernels/head_share.hpp"
#include "tt_kernels/common/kernels/masses.hpp"
#include "tt_kernels/common/kernels/partial_link.hpp"
#include "tt_kernels/common/kernels/tile_masks.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace {

constexpr uint32_t head_tiles = config::head_tiles;
static_assert(tile_rows::face_bytes <= MEM_ZEROS_SIZE);

void push_times(
    const interval_tiles::Times& times,
    const jobs::Job& job,
    const jobs::Span& span,
    const attention::Part& part) {
    cb_reserve_back(config::cb_query_times, config::query_tiles());
    times.write_queries(get_write_ptr(config::cb_query_times), job);
    cb_push_back(config::cb_query_times, config::query_tiles());
    for (const attention::Range* range : {&part.first, &part.last, &part.middle}) {
        jobs::for_each_chunk(*range, [&](const attention::Range& chunk) {
            if (!span.masks(chunk)) {
                return;
            }
            cb_reserve_back(config::cb_key_times, 2 * config::tree_tiles());
            uint32_t to = get_write_ptr(config::cb_key_times);
            for (uint32_t tile = chunk.begin + span.unmasked(chunk); tile < chunk.end; ++tile) {
                times.write_keys(to, span, tile);
                to += 2 * tile_rows::tile_bytes;
            }
            cb_push_back(config::cb_key_times, 2 * config::tree_tiles());
        });
    }
}

// Writes the rows of the results in `cb`, one query tile after another: before(tile) once it is there, then the rows,
// then after(tile).
template <typename Accessor, typename Before, typename After>
void scatter_results(uint32_t cb, const Accessor& output, const jobs::Job& job, Before before, After after) {
    for (uint32_t tile = 0; tile < job.tiles(); ++tile) {
        cb_wait_front(cb, head_tiles);
        before(tile);
        packed_rows::move(packed_rows::Move::to_tensor, output, job, tile, get_read_ptr(cb));
        after(tile);
        noc_async_writes_flushed();
        cb_pop_front(cb, head_tiles);
    }
}

// The same for exact results whose guess is in DRAM, and its first two query tiles prepared. Returns the job's sums.
template <typename Accessor>
job_sums::Sums scatter_measured(
    const Accessor& output,
    const Accessor& guess,
    const interval_tiles::Times& times,
    const jobs::Job& job,
    measured_rows::Pairs& pairs) {
    job_sums::Sums sums{};
    scatter_results(
        config::cb_output, output, job, [&](uint32_t tile) { pairs.hand_over(times, job, tile); },
        [&](uint32_t tile) {
            if (tile > 0) {
                measured_rows::add_measured(sums);
                if (tile + 1 < job.tiles()) {
                    pairs.prepare(guess, times, job, tile + 1, 0);
                }
            }
        });
    measured_rows::add_measured(sums);
    return sums;
}

// Sends the first `rows` rows of the states that compute hands over (tile_merge.hpp).
__attribute__((noinline)) void send_tiles(partial_link::Sender& partials, uint32_t rows) {
    constexpr uint32_t float32_bytes = 2 * tile_rows::tile_bytes,
                       bytes = config::partial_tiles * float32_bytes;
    partials.send([&](const volatile tt_l1_ptr uint32_t* page, uint32_t index, uint64_t start) {
        const uint32_t state = page[0], row_max = page[1];
        // This kernel pushes nothing into these: its pointers stay at the start.
        const uint64_t to = start + get_write_ptr(config::cb_gathered) + index * bytes;
        const uint64_t row_max_to =
            start + get_write_ptr(config::cb_gathered_row_max) + index * tile_rows::tile_bytes;
        tile_rows::for_each_piece(0, rows, [&](uint32_t offset, uint32_t piece) {
            noc_async_write_one_packet_set_state(to, 2 * piece);
            for (uint32_t at = 2 * offset; at < bytes; at += float32_bytes) {
                noc_async_write_one_packet_with_state(state + at, static_cast<uint32_t>(to) + at);
            }
            if (offset / tile_rows::face_bytes % tile_rows::faces_across == 0) {  // only column 0 counts
                noc_async_write_one_packet(row_max + offset, row_max_to + offset, piece);
            }
        });
    });
}

// Zeros for the job of a skipped user.
template <typename Accessor>
void scatter_zeros(const Accessor& output, const jobs::Job& job) {
    for (uint32_t tile = 0; tile < job.tiles(); ++tile) {
        packed_rows::move(packed_rows::Move::zeros, output, job, tile, 0);
    }
}

// Clears the rows after the last tree's nodes in the last tile of every head of `job`.
template <typename Accessor>
__attribute__((noinline)) void clear_padding(const Accessor& output, const jobs::Job& job) {
    const uint32_t rows = config::trees() * config::nodes();
    if (rows % 32 == 0) {
        return;
    }
    for (uint32_t head = 0; head < config::group_heads(); ++head) {
        for (uint32_t column = 0; column < head_tiles; ++column) {
            const uint32_t page =
                packed_rows::page_of(job.kv_head * config::group_heads() + head, rows, column);
            tile_rows::for_each_piece(rows % 32, 32, [&](uint32_t offset, uint32_t bytes) {
                noc_async_write<tile_rows::face_bytes>(
                    MEM_ZEROS_BASE, output.get_noc_addr(page, offset), bytes);
            });
        }
    }
}

}  // namespace

void kernel_main() {
    const uint32_t group = RUNTIME_ARG(group), groups = RUNTIME_ARG(groups), worker = RUNTIME_ARG(worker);
    const auto intervals = TensorAccessor(ACCESSOR_ARGS(intervals), RUNTIME_ARG(intervals));
    const auto output = TensorAccessor(ACCESSOR_ARGS(output), RUNTIME_ARG(exact));

    if constexpr (config::hands_out_masses) {
        cache_rows::push_mass_columns();
        interval_tiles::clear_tiles();
        noc_async_read_barrier();
    } else {
        cache_rows::push_ones();
        interval_tiles::clear_tiles();
        noc_async_read_barrier();
        cache_rows::push_values_ones();
    }
    if constexpr (config::prefills) {
        steady_softmax::push_ones();
    }
    cb_wait_front(config::cb_control_writer, 1);
    const volatile tt_l1_ptr uint32_t* words =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_control_writer));
    if (words[control::receiving]) {
        return;  // the peer's guess is the result
    }

    const uint32_t receiver = RUNTIME_INDEX(receiver_core);
    [[maybe_unused]] const uint32_t deciding_core = RUNTIME_INDEX(deciding_core);
    partial_link::Sender partials(
        worker, get_arg_val<uint32_t>(receiver), get_arg_val<uint32_t>(receiver + 1));
    const auto guess = TensorAccessor(ACCESSOR_ARGS(output), RUNTIME_ARG(guess));
    const bool reduces = worker == attention::reducer;
    [[maybe_unused]] measured_rows::Pairs pairs;
    interval_tiles::Times times;
    const auto mass_lines = TensorAccessor(ACCESSOR_ARGS(masses), RUNTIME_ARG(masses));
    masses::Keeper<jobs::Roots> keeper(RUNTIME_ARG(scale_log2e));
    masses::Totals totals;
    const bool alone = config::workers() == 1;
    for (steady_softmax::Turns turns(group, groups, jobs::count()); turns.next();) {
        const uint32_t index = turns.job();
        if (turns.again()) {
            noc_async_write_barrier();  // of the results that this job's overwrite
        }
        const jobs::Job job = jobs::job_of(index);
        const uint32_t own = jobs::own_tokens(words[jobs::control_word(job.tree)], job.tree);
        const bool skipped = own == 0;
        const jobs::Span span = skipped ? jobs::Span{0, 0} : jobs::span_of(own);
        const attention::Share share = skipped ? attention::Share{} : head_share::take();
        const attention::Part& part = share.part;
        if (!skipped && span.masks(part)) {
            times.fetch(job.tree, intervals);
            push_times(times, job, span, part);
        }
        if (reduces && job.first && job.tree == config::trees() - 1) {
            clear_padding(output, job);
            if constexpr (config::speculate) {
                clear_padding(guess, job);
            }
        }
        const auto send = [&] { send_tiles(partials, attention::min(job.rows, 32)); };
        const auto scatter = [&](uint32_t cb, const auto& to) {
            if (skipped) {
                scatter_zeros(to, job);
            } else {
                scatter_results(cb, to, job, [](uint32_t) {}, [](uint32_t) {});
            }
        };
        const bool keeps = config::hands_out_masses && !skipped;
        if (keeps) {
            keeper.begin(jobs::Roots{}, part, span.of_root());
            auto order = chosen_heads::order_of(span.ends(), share.chosen, turns.round());
            keeper.fetch(order, mass_lines.get_noc_addr(index));
            keeper.keep_guess();
        }
        if constexpr (config::speculate) {
            if (reduces) {
                scatter(config::cb_guess, guess);
                noc_async_write_barrier();
                if constexpr (config::has_peer) {
                    const uint32_t core = RUNTIME_INDEX(exchange_core);
                    noc_semaphore_inc(
                        get_noc_addr(
                            get_arg_val<uint32_t>(core), get_arg_val<uint32_t>(core + 1),
                            get_semaphore(config::sem_guessed)),
                        1);
                }
            } else if (!skipped && share.sends_guess) {
                send();
            }
        }
        if (keeps) {
            keeper.keep_rest();
        }
        if (config::speculate && reduces && !skipped) {
            times.fetch(job.tree, intervals);
            for (uint32_t tile = 0; tile < attention::min(job.tiles(), 2); ++tile) {
                pairs.prepare(guess, times, job, tile, tile);
            }
        }
        if (keeps && reduces) {
            keeper.keep_last();
            if (alone) {
                totals.take(jobs::RootTotals{});
            }
            keeper.take_totals();  // while compute divides by them
        }
        if (!reduces) {
            if (!skipped && share.sends) {
                send();
            }
        } else if (config::speculate && !skipped) {
            const job_sums::Sums sums = scatter_measured(output, guess, times, job, pairs);
            job_sums::send(
                sums, index, get_arg_val<uint32_t>(deciding_core), get_arg_val<uint32_t>(deciding_core + 1));
        } else {
            scatter(config::cb_output, output);
        }
        if (keeps && part.tiles() > 0) {
            if (!reduces) {
                keeper.keep_last();
                keeper.take_totals();
            }
            auto order = chosen_heads::order_of(span.ends(), share.chosen, turns.round());
            keeper.write(order, mass_lines.get_noc_addr(index), alone);
        }
    }
    noc_async_full_barrier();
}
