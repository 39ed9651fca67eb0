// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The reader (NCRISC): the control page, then for each job of its group the rows of its queries, gathered into
// tiles, this worker's keys and values, and the partial results it receives.

#include <cstdint>
#include <type_traits>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "jobs.hpp"
#include "packed_rows.hpp"
#include "steady_softmax.hpp"
#include "tt_kernels/common/kernels/cache_rows.hpp"
#include "tt_kernels/common/kernels/chosen_heads.hpp"
#include "tt_kernels/common/kernels/fetch_control.hpp"
#include "tt_kernels/common/kernels/head_share.hpp"
#include "tt_kernels/common/kernels/head_rows.hpp"
#include "tt_kernels/common/kernels/masses.hpp"
#include "tt_kernels/common/kernels/merge_tree.hpp"
#include "tt_kernels/common/kernels/partial_link.hpp"
#include "tt_kernels/common/kernels/read_share.hpp"

namespace {

constexpr uint32_t head_tiles = config::head_tiles;

// Gathers query tiles [begin, end) of `job` into cb_query, which is reserved for query_tiles(); tiles that the job
// lacks are pushed too, so that the buffer's pointers stay at the start.
template <typename Accessor>
void gather_queries(const Accessor& query, const jobs::Job& job, uint32_t begin, uint32_t end) {
    if constexpr (config::prefills) {
        const uint32_t tiles = job.tiles();
        for (uint32_t tile = 0; tile < tiles; ++tile) {
            packed_rows::move(
                packed_rows::Move::from_tensor, query, job, tile,
                get_write_ptr(config::cb_query) + tile * head_tiles * tile_rows::tile_bytes);
        }
        noc_async_read_barrier();
        cb_push_back(config::cb_query, end * head_tiles);
        return;
    }
    for (uint32_t tile = begin; tile < end; ++tile) {
        if (tile < job.tiles()) {
            packed_rows::move(
                packed_rows::Move::from_tensor, query, job, tile, get_write_ptr(config::cb_query));
            noc_async_read_barrier();
        }
        cb_push_back(config::cb_query, head_tiles);
    }
}

}  // namespace

void kernel_main() {
    const uint32_t group = RUNTIME_ARG(group), groups = RUNTIME_ARG(groups), worker = RUNTIME_ARG(worker);
    constexpr auto cache_args = ACCESSOR_ARGS(cache);
    const auto query = TensorAccessor(ACCESSOR_ARGS(query), RUNTIME_ARG(queries));
    const auto keys = TensorAccessor(cache_args, RUNTIME_ARG(keys));
    const auto values = TensorAccessor(cache_args, RUNTIME_ARG(values));
    const auto pages = TensorAccessor(ACCESSOR_ARGS(pages), RUNTIME_ARG(pages));
    const head_rows::Shape shape{
        config::prefills ? config::block_heads() : config::kv_heads(), config::cache_tiles(),
        config::block_shift()};
    using Rows = head_rows::Rows<head_tiles, config::paged>;

    const volatile tt_l1_ptr uint32_t* words =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_write_ptr(config::cb_control));
    if constexpr (config::with_chosen) {
        const auto chosen = TensorAccessor(ACCESSOR_ARGS(chosen), RUNTIME_ARG(chosen));
        chosen_heads::fetch(chosen, group, groups, config::passes());
    }
    control::share();
    if (words[control::receiving]) {
        return;
    }

    partial_link::Receiver partials;
    const auto at_worker = [&](uint32_t other, uint32_t address) {
        const uint32_t core = RUNTIME_INDEX(group_cores) + 2 * other;
        return get_noc_addr(get_arg_val<uint32_t>(core), get_arg_val<uint32_t>(core + 1), address);
    };
    const auto credit_of = [&](uint32_t distance) {
        return at_worker(worker + distance, get_semaphore(config::sem_credit));
    };
    [[maybe_unused]] masses::Totals totals;
    for (steady_softmax::Turns turns(group, groups, jobs::count()); turns.next();) {
        const uint32_t index = turns.job();
        const jobs::Job job = jobs::job_of(index);
        const uint32_t own = jobs::own_tokens(words[jobs::control_word(job.tree)], job.tree);
        if (own == 0) {
            continue;
        }
        const jobs::Span span = jobs::span_of(own);
        const uint32_t chosen = chosen_heads::keep(span.ends(), turns.round());
        const attention::HeadSplit head = span.split(chosen);
        const attention::Share share = head.share(worker, chosen);
        head_share::pass_on(share);
        const attention::Part& part = share.part;
        const uint32_t table_row = config::prefills ? job.kv_head / shape.kv_heads : job.tree;
        const uint32_t head_in_block = config::prefills ? job.kv_head % shape.kv_heads : job.kv_head;
        const uint32_t blocks = config::paged ? get_write_ptr(config::cb_pages) : 0;
        uint32_t gathered = config::query_tiles();  // none, where there are no keys
        if (part.tiles() > 0) {
            cb_reserve_back(config::cb_query, gathered * head_tiles);
            if constexpr (config::paged) {
                head_rows::fetch(pages, shape, table_row, span.tokens, blocks);
            }
            gathered = config::prefills ? gathered : 1;
            gather_queries(query, job, 0, gathered);  // with a barrier
        }
        using Order = decltype(chosen_heads::order_of(span.ends(), chosen, turns.round()));
        const chosen_tiles::Rearranged<Rows, Order> rows{
            head_rows::of<head_tiles, config::paged>(shape, table_row, head_in_block, blocks),
            chosen_heads::order_of(span.ends(), chosen, turns.round())};
        cache_rows::InTurn<std::remove_const_t<decltype(keys)>, std::remove_const_t<decltype(rows)>> in_turn(
            {keys, values, rows, span.tokens});
        const auto read_chunk = [&](attention::Range& range) {
            in_turn.read(jobs::next_chunk(range));
            if (const uint32_t query_tiles = config::query_tiles(); gathered < query_tiles) {
                // In the order in which steps need them: two are scored before the first takes in values.
                const uint32_t early = attention::min(query_tiles, 3);
                gather_queries(query, job, gathered, early);
                in_turn.finish();
                gather_queries(query, job, early, query_tiles);
                gathered = query_tiles;
            }
        };
        head_share::read(
            share, in_turn, read_chunk, [&](uint32_t sources) { partials.receive(sources, credit_of); });
        if constexpr (config::hands_out_masses) {
            if (worker == attention::reducer && config::workers() > 1) {
                totals.take(jobs::RootTotals{});
                totals.send(head.workers_end(), at_worker);
            }
        }
    }
    noc_async_atomic_barrier();
}
