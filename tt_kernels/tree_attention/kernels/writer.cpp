// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The writer (BRISC): makes the constant tile and, for each job of its group, the times its mask is made of; then sends
// the partial result to the worker that merges it, or writes the rows of the result, and zeros where there is no node.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "interval_tiles.hpp"
#include "jobs.hpp"
#include "packed_rows.hpp"
#include "tt_kernels/common/kernels/cache_rows.hpp"
#include "tt_kernels/common/kernels/merge_tree.hpp"
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
    const attention::Range& part) {
    cb_reserve_back(config::cb_query_times, config::query_tiles());
    times.write_queries(get_write_ptr(config::cb_query_times), job);
    cb_push_back(config::cb_query_times, config::query_tiles());
    jobs::for_each_chunk(part, [&](const attention::Range& chunk) {
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

template <typename Accessor>
void scatter_results(const Accessor& output, const jobs::Job& job) {
    for (uint32_t tile = 0; tile < job.tiles(); ++tile) {
        cb_wait_front(config::cb_output, head_tiles);
        const uint32_t from = get_read_ptr(config::cb_output);
        packed_rows::for_each_piece(
            job, tile,
            [&](uint32_t page, uint32_t page_offset, uint32_t column, uint32_t offset, uint32_t bytes) {
                noc_async_write<tile_rows::face_bytes>(
                    from + column * tile_rows::tile_bytes + offset, output.get_noc_addr(page, page_offset),
                    bytes);
            });
        noc_async_writes_flushed();
        cb_pop_front(config::cb_output, head_tiles);
    }
}

// Zeros for the job of a skipped user.
template <typename Accessor>
void scatter_zeros(const Accessor& output, const jobs::Job& job) {
    for (uint32_t tile = 0; tile < job.tiles(); ++tile) {
        packed_rows::for_each_piece(
            job, tile, [&](uint32_t page, uint32_t page_offset, uint32_t, uint32_t, uint32_t bytes) {
                noc_async_write<tile_rows::face_bytes>(
                    MEM_ZEROS_BASE, output.get_noc_addr(page, page_offset), bytes);
            });
    }
}

// Clears the rows after the last user's nodes in the last tile of every head of `job`.
template <typename Accessor>
void clear_padding(const Accessor& output, const jobs::Job& job) {
    const uint32_t rows = config::users() * config::nodes();
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
    const auto output = TensorAccessor(ACCESSOR_ARGS(output), RUNTIME_ARG(output));

    cache_rows::push_ones<head_tiles>(config::cb_ones, config::cb_values, 2 * config::key_tiles());
    interval_tiles::clear_tiles();
    noc_async_read_barrier();
    cache_rows::push_values_ones<head_tiles>(config::cb_ones);
    cb_wait_front(config::cb_control_writer, 1);
    const volatile tt_l1_ptr uint32_t* prefixes =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_control_writer));

    const uint32_t receiver = RUNTIME_INDEX(receiver_core);
    partial_link::Sender partials(
        {config::cb_gathered, config::cb_gathered_row_max, merge_tree::levels(config::workers()),
         config::partial_tiles, config::query_tiles()},
        worker, get_arg_val<uint32_t>(receiver), get_arg_val<uint32_t>(receiver + 1),
        get_semaphore(config::sem_arrived), get_semaphore(config::sem_credit));
    interval_tiles::Times times;
    for (uint32_t index = group; index < jobs::count(); index += groups) {
        const jobs::Job job = jobs::job_of(index);
        const bool stores = worker == attention::reducer, skipped = prefixes[job.user] == jobs::skipped;
        const jobs::Span span = skipped ? jobs::Span{0, 0} : jobs::span_of(prefixes[job.user]);
        const attention::Range part = span.part(worker);
        if (span.masks(part)) {
            times.fetch(job.user, intervals);
            push_times(times, job, span, part);
        }
        if (stores && job.first && job.user == config::users() - 1) {
            clear_padding(output, job);
        }
        if (skipped) {
            if (stores) {
                scatter_zeros(output, job);
            }
            continue;
        }
        if (stores) {
            scatter_results(output, job);
        } else if (part.size() > 0) {
            partials.send(config::cb_handover, 0, attention::min(job.rows, 32));
        }
    }
    noc_async_full_barrier();
}
