// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's reader (NCRISC): the control page; the queries and this worker's part of the keys and values of each head
// of its group; and the partial results that it receives from other workers.

#include <cstdint>
#include <type_traits>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "control.hpp"
#include "dense_partials.hpp"
#include "tt_kernels/common/kernels/cache_rows.hpp"
#include "tt_kernels/common/kernels/chosen_heads.hpp"
#include "tt_kernels/common/kernels/fetch_control.hpp"
#include "tt_kernels/common/kernels/head_share.hpp"
#include "tt_kernels/common/kernels/head_rows.hpp"
#include "tt_kernels/common/kernels/masses.hpp"
#include "tt_kernels/common/kernels/merge_tree.hpp"
#include "tt_kernels/common/kernels/partial_link.hpp"
#include "tt_kernels/common/kernels/read_share.hpp"
#include "tt_kernels/common/kernels/tile_masks.hpp"

namespace {

constexpr uint32_t head_tiles = config::head_tiles;

// Starts to read the rows with the queries of a head. The rows behind hold the probes (probe_rows.hpp), or nothing.
template <typename Accessor>
__attribute__((noinline)) void start_queries(const Accessor& query, uint32_t item) {
    const uint32_t rows = config::group_heads(), user = item / config::kv_heads();
    const uint32_t head = item - user * config::kv_heads();
    cb_reserve_back(config::cb_query, head_tiles);
    uint32_t to = get_write_ptr(config::cb_query);
    for (uint32_t tile = 0; tile < head_tiles; ++tile) {
        const uint64_t from = query.get_noc_addr(user * head_tiles + tile);
        tile_rows::for_each_common_piece(
            head * rows, 0, rows, [&](uint32_t there, uint32_t here, uint32_t bytes) {
                noc_async_read<tile_rows::face_bytes>(from + there, to + here, bytes);
            });
        to += tile_rows::tile_bytes;
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
    const head_rows::Shape shape{config::kv_heads(), config::cache_tiles(), config::block_shift()};
    using Rows = head_rows::Rows<head_tiles, config::paged>;

    const volatile tt_l1_ptr uint32_t* words =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_write_ptr(config::cb_control));
    if constexpr (config::with_chosen) {
        const auto chosen = TensorAccessor(ACCESSOR_ARGS(chosen), RUNTIME_ARG(chosen));
        chosen_heads::fetch(chosen, group, groups, 1);
    }
    control::share([&] { start_queries(query, group); });  // what its users' positions are good for or not
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
    bool mask_is_blank = false;  // but for its first column
    uint32_t round = 0;
    for (uint32_t item = group; item < config::items(); item += groups, ++round) {
        const uint32_t user = item / config::kv_heads();
        const uint32_t tokens = words[control::first_tokens + user];
        if (tokens == 0) {
            continue;
        }
        const uint32_t chosen = chosen_heads::keep(control::ends_of(tokens), round);
        const attention::HeadSplit head = control::split_of(tokens, chosen);
        const attention::Share share = head.share(worker, chosen);
        head_share::pass_on(share);
        const attention::Part& part = share.part;
        const uint32_t blocks = config::paged ? get_write_ptr(config::cb_pages) : 0;
        if (part.tiles() > 0) {
            if constexpr (config::paged) {
                head_rows::fetch(pages, shape, user, tokens, blocks);
            }
            if (item != group) {
                start_queries(query, item);
            }
            const bool masked = attention::needs_mask(part, tokens);
            if (masked) {
                cb_reserve_back(config::cb_mask, 1);
                if (!mask_is_blank) {
                    tile_masks::clear(get_write_ptr(config::cb_mask), tile_rows::tile_bytes);
                    mask_is_blank = true;
                }
            }
            noc_async_read_barrier();
            cb_push_back(config::cb_query, head_tiles);
            if (masked) {
                tile_masks::key_mask(get_write_ptr(config::cb_mask), attention::tokens_in_last_tile(tokens));
                cb_push_back(config::cb_mask, 1);
            }
        }

        using Order = decltype(chosen_heads::order_of(control::ends_of(tokens), chosen, round));
        const chosen_tiles::Rearranged<Rows, Order> rows{
            head_rows::of<head_tiles, config::paged>(shape, user, item % config::kv_heads(), blocks),
            chosen_heads::order_of(control::ends_of(tokens), chosen, round)};
        cache_rows::InTurn<std::remove_const_t<decltype(keys)>, std::remove_const_t<decltype(rows)>> in_turn(
            {keys, values, rows, tokens});
        const auto read_chunk = [&](attention::Range& range) {
            const uint32_t end = attention::min(range.begin + config::key_tiles(), range.end);
            in_turn.read({range.begin, end});
            range.begin = end;
        };
        head_share::read(
            share, in_turn, read_chunk, [&](uint32_t sources) { partials.receive(sources, credit_of); });
        if constexpr (config::hands_out_masses) {
            if (worker == attention::reducer && config::workers() > 1) {
                totals.take(dense_partials::totals);
                totals.send(head.workers_end(), at_worker);
            }
        }
    }
    noc_async_atomic_barrier();
}
