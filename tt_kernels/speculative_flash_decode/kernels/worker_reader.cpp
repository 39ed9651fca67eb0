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
#include "fetch_control.hpp"
#include "masses.hpp"
#include "probe_rows.hpp"
#include "tt_kernels/common/kernels/cache_rows.hpp"
#include "tt_kernels/common/kernels/chunk_split.hpp"
#include "tt_kernels/common/kernels/head_rows.hpp"
#include "tt_kernels/common/kernels/merge_tree.hpp"
#include "tt_kernels/common/kernels/partial_link.hpp"
#include "tt_kernels/common/kernels/tile_list.hpp"
#include "tt_kernels/common/kernels/tile_masks.hpp"

namespace {

using attention::Range;

constexpr uint32_t head_tiles = config::head_tiles;
// The rows that the other workers of a head read one at a time while its guess is read, which else waits in the DRAM
// banks for four of each of them, time after time. Where all groups have few tiles the banks are idle soon anyway.
constexpr uint32_t rows_beside_guess = 8, many_tiles = 512;

tile_list::Row list_of(uint32_t item) {
    return reinterpret_cast<tile_list::Row>(get_write_ptr(config::cb_lists) + item * tile_list::row_bytes);
}

// Keeps of the list of each of a group's heads what its guess reads, and adds the counts to the control page.
void count_listed(volatile tt_l1_ptr uint32_t* words, uint32_t group, uint32_t groups) {
    const attention::GuessRange guess = config::guess();
    for (uint32_t i = 0; i < control::max_items / 4; ++i) {
        words[control::first_listed + i] = 0;
    }
    for (uint32_t item = group; item < config::items(); item += groups) {
        const uint32_t tokens = words[control::first_tokens + item / config::kv_heads()];
        const uint32_t total = attention::tiles_of(tokens), tail = guess.tail(tokens);
        if (total > guess.first + tail) {
            const uint32_t kept =
                tile_list::keep(list_of(item), tokens, guess.first, total - tail, guess.tiles);
            words[control::listed_word(item)] |= kept << control::listed_shift(item);
        }
    }
}

// Starts to read the bands of rows with the queries of a head, and writes the probes beside them. The other rows hold
// nothing.
template <typename Accessor>
void read_queries(const Accessor& query, uint32_t to, uint32_t user, uint32_t head) {
    const uint32_t begin = head * config::rows_per_head(), end = begin + config::rows_per_head();
    for (uint32_t tile = 0; tile < head_tiles; ++tile) {
        const uint64_t from = query.get_noc_addr(user * head_tiles + tile);
        const uint32_t at = to + tile * tile_rows::tile_bytes;
        tile_rows::for_each_piece(
            begin / probe_rows::band_rows * probe_rows::band_rows, probe_rows::band_end(end),
            [&](uint32_t offset, uint32_t bytes) { noc_async_read(from + offset, at + offset, bytes); });
    }
    for (uint32_t tile = 0; tile < head_tiles; ++tile) {
        probe_rows::write(to + tile * tile_rows::tile_bytes, tile, begin, end);
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
    if constexpr (config::followed) {
        const auto lists = TensorAccessor(ACCESSOR_ARGS(lists), RUNTIME_ARG(lists));
        for (uint32_t item = group; item < config::items(); item += groups) {
            noc_async_read(
                lists.get_noc_addr(item), reinterpret_cast<uint32_t>(list_of(item)), tile_list::row_bytes);
        }
    }
    control::share(
        control::sources_args(), ACCESSOR_ARGS(positions), ACCESSOR_ARGS(gathered), [&](auto* page) {
            if constexpr (config::followed) {
                count_listed(page, group, groups);
            }
        });
    if (words[control::receiving]) {
        return;
    }

    partial_link::Receiver partials(
        {config::cb_gathered, config::cb_gathered_row_max, merge_tree::levels(config::workers()),
         config::partial_tiles},
        get_semaphore(config::sem_arrived));
    const auto at_worker = [&](uint32_t other, uint32_t address) {
        const uint32_t core = RUNTIME_INDEX(group_cores) + 2 * other;
        return get_noc_addr(get_arg_val<uint32_t>(core), get_arg_val<uint32_t>(core + 1), address);
    };
    const auto credit_of = [&](uint32_t level) {
        return at_worker(merge_tree::child_of(worker, level), get_semaphore(config::sem_credit));
    };
    [[maybe_unused]] masses::Totals totals;
    bool mask_is_blank = false;  // but for its first column
    const bool shares = config::speculate && config::workers() > 1;
    const bool guesses = worker == control::speculative_worker();
    for (uint32_t item = group; item < config::items(); item += groups) {
        const uint32_t user = item / config::kv_heads();
        const uint32_t tokens = words[control::first_tokens + user];
        const uint32_t listed = control::listed_of(words, item);
        const auto part = control::part_of(tokens, listed, worker);
        if (part.tiles() > 0) {
            const uint32_t blocks = config::paged ? get_write_ptr(config::cb_pages) : 0;
            if constexpr (config::paged) {
                head_rows::fetch(pages, shape, user, tokens, blocks);
            }
            cb_reserve_back(config::cb_query, head_tiles);
            read_queries(query, get_write_ptr(config::cb_query), user, item % config::kv_heads());
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

            const auto head = [&] {
                const auto rows =
                    head_rows::of<head_tiles, config::paged>(shape, user, item % config::kv_heads(), blocks);
                if constexpr (config::followed) {
                    return tile_list::Renumbered<Rows>{
                        rows, list_of(item) + tile_list::first_tile, config::guess().first, listed};
                } else {
                    return rows;
                }
            }();
            cache_rows::InTurn<
                head_tiles, std::remove_const_t<decltype(keys)>, std::remove_const_t<decltype(head)>>
                in_turn(
                    {keys, values, config::cb_keys, config::cb_values, head, tokens, config::key_tiles()},
                    shares && !guesses && groups * attention::tiles_of(tokens) >= many_tiles
                        ? rows_beside_guess
                        : 0);
            const auto read = [&](const Range& range) {
                for (uint32_t begin = range.begin; begin < range.end; begin += config::key_tiles()) {
                    in_turn.read({begin, attention::min(begin + config::key_tiles(), range.end)});
                }
            };
            read(part.first);
            read(part.last);
            if (shares) {
                in_turn.finish();  // the guess is complete before anything else is read
            }
            read(part.middle);
            in_turn.finish();
        }
        if (tokens > 0) {
            const auto has = [&](uint32_t other) {
                return control::part_of(tokens, listed, other).tiles() > 0;
            };
            const uint32_t sources = merge_tree::sources_of(worker, config::workers(), has);
            [[maybe_unused]] uint64_t with_parts = 0;  // the workers of this head with tiles, a bit for each
            if constexpr (config::hands_out_masses) {
                for (uint32_t other = 1; worker == attention::reducer && other < config::workers(); ++other) {
                    with_parts |= static_cast<uint64_t>(has(other)) << other;
                }
            }
            partials.receive(sources, credit_of);
            if constexpr (config::hands_out_masses) {
                if (worker == attention::reducer && config::workers() > 1) {
                    totals.take(item % config::kv_heads() * config::rows_per_head());
                    totals.send(with_parts, at_worker);
                }
            }
        }
    }
    noc_async_atomic_barrier();
}
