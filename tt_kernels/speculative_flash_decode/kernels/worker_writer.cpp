// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's writer (BRISC): makes the constant tile; sends the rows of its guess and exact result to where they are
// gathered, and its partial result to the worker that merges it (merge_tree.hpp).

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "control.hpp"
#include "dense_partials.hpp"
#include "probe_rows.hpp"
#include "tt_kernels/common/kernels/cache_rows.hpp"
#include "tt_kernels/common/kernels/chosen_heads.hpp"
#include "tt_kernels/common/kernels/head_share.hpp"
#include "tt_kernels/common/kernels/masses.hpp"
#include "tt_kernels/common/kernels/merge_tree.hpp"
#include "tt_kernels/common/kernels/partial_link.hpp"
#include "tt_kernels/common/kernels/tile_masks.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace {

constexpr uint32_t head_tiles = config::head_tiles;

// A core by its place on the NoC.
struct Core {
    uint32_t x;
    uint32_t y;

    uint64_t at(uint32_t address) const { return get_noc_addr(x, y, address); }
};

// The x and y of a core, at this index and the next.
Core core_arg(uint32_t index) { return {get_arg_val<uint32_t>(index), get_arg_val<uint32_t>(index + 1)}; }

// A head's rows in the tiles of its user.
struct Rows {
    uint32_t user;
    uint32_t begin;
    uint32_t end;
    bool last;  // of its user
};

Rows rows_of(uint32_t item) {
    const uint32_t user = item / config::kv_heads();
    const uint32_t head = item - user * config::kv_heads();
    const uint32_t row = head * config::group_heads();
    return {user, row, row + config::group_heads(), head == config::kv_heads() - 1};
}

// The addresses of the tiles of a user's result.
struct Tiles {
    uint64_t at[head_tiles];
};

// On a core that gathers the results of all users from `base`.
Tiles gathered_tiles(
    const Core& core, uint32_t base, uint32_t user, uint32_t tile_bytes = tile_rows::tile_bytes) {
    Tiles tiles;
    for (uint32_t tile = 0; tile < head_tiles; ++tile) {
        tiles.at[tile] = core.at(base + (user * head_tiles + tile) * tile_bytes);
    }
    return tiles;
}

template <typename Accessor>
Tiles pages(const Accessor& output, uint32_t user) {
    Tiles tiles;
    for (uint32_t tile = 0; tile < head_tiles; ++tile) {
        tiles.at[tile] = output.get_noc_addr(user * head_tiles + tile);
    }
    return tiles;
}

// Sends the next results of a head, a tile for each band of its rows (dense_partials.hpp), to its rows of `to`.
__attribute__((noinline)) void send_rows(const Rows& head, const Tiles& to) {
    cb_wait_front(config::cb_result, config::partials());
    uint32_t from = get_read_ptr(config::cb_result);
    for (uint32_t begin = head.begin; begin < head.end; begin += config::band_rows) {
        const uint32_t rows = attention::min(config::band_rows, head.end - begin);
        for (uint32_t tile = 0; tile < head_tiles; ++tile) {
            tile_rows::for_each_common_piece(
                tile * config::band_rows, begin, rows, [&](uint32_t here, uint32_t there, uint32_t bytes) {
                    noc_async_write<tile_rows::face_bytes>(from + here, to.at[tile] + there, bytes);
                });
        }
        from += tile_rows::tile_bytes;
    }
    noc_async_write_barrier();
}

// Sends the partial results that compute hands over.
void send_partials(partial_link::Sender& partials) {
    using namespace dense_partials;
    partials.send([](const volatile tt_l1_ptr uint32_t* page, uint32_t index, uint64_t start) {
        // This kernel pushes nothing into the slots: its pointer stays at the start.
        const uint64_t to = start + get_write_ptr(gathered) + index * config::dense_pages * page_bytes();
        noc_async_write_one_packet(page[0], to, page_bytes() + stats_bytes);
    });
}

// Zeros to rows [begin, end), which no worker computes.
void send_zeros(uint32_t begin, uint32_t end, const Tiles& to) {
    static_assert(tile_rows::face_bytes <= MEM_ZEROS_SIZE);
    for (uint32_t tile = 0; tile < head_tiles; ++tile) {
        tile_rows::for_each_piece(begin, end, [&](uint32_t offset, uint32_t bytes) {
            noc_async_write<tile_rows::face_bytes>(MEM_ZEROS_BASE, to.at[tile] + offset, bytes);
        });
    }
}

// Sends the next result of a head to `to`, then adds `count` to the semaphore at `landed`, on the core that holds the tiles.
void send_result(const Rows& head, const Tiles& to, uint64_t landed, uint32_t count) {
    send_rows(head, to);
    noc_semaphore_inc(landed, count);
}

// The guess goes first to the core that talks to the peer, then to the one that verifies it. Both gather it, as exact results,
// in buffers at the same address on all cores, whose pointers stay at the start here.
void send_guess(const Rows& head, const Core& output, const Core& exchange) {
    if constexpr (config::has_peer) {
        const Tiles outgoing = gathered_tiles(
            exchange, get_write_ptr(config::cb_outgoing), head.user, config::outgoing_tile_bytes());
        send_result(head, outgoing, exchange.at(get_semaphore(config::sem_outgoing)), 1);
    }
    const Tiles gathered = gathered_tiles(output, get_write_ptr(config::cb_guess), head.user);
    const uint64_t landed = output.at(get_semaphore(config::sem_user + head.user));
    send_result(head, gathered, landed, config::guess_landed);
    cb_pop_front(config::cb_result, config::partials());
}

}  // namespace

void kernel_main() {
    const uint32_t group = RUNTIME_ARG(group), groups = RUNTIME_ARG(groups), worker = RUNTIME_ARG(worker);
    const Core receiver = core_arg(RUNTIME_INDEX(receiver_core));
    const Core output = core_arg(RUNTIME_INDEX(deciding_core));
    const Core exchange = core_arg(RUNTIME_INDEX(exchange_core));
    const auto exact = TensorAccessor(ACCESSOR_ARGS(output), RUNTIME_ARG(exact));

    probe_rows::write(get_write_ptr(config::cb_query), config::group_heads());  // before compute has ones
    if constexpr (config::hands_out_masses) {
        cache_rows::push_mass_columns();
    } else {
        cache_rows::push_ones();
        cache_rows::push_values_ones();
    }
    cb_wait_front(config::cb_control_writer, 1);
    const volatile tt_l1_ptr uint32_t* words =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_control_writer));
    if (words[control::receiving]) {
        return;
    }
    const bool reduces = worker == attention::reducer;

    partial_link::Sender partials(worker, receiver.x, receiver.y);
    [[maybe_unused]] const auto mass_lines = TensorAccessor(ACCESSOR_ARGS(masses), RUNTIME_ARG(masses));
    masses::Keeper<control::HeadRows> keeper(RUNTIME_ARG(scale_log2e));
    [[maybe_unused]] masses::Totals totals;
    [[maybe_unused]] const bool alone = config::workers() == 1;
    uint32_t round = 0;
    for (uint32_t item = group; item < config::items(); item += groups, ++round) {
        const Rows head = rows_of(item);
        const uint32_t tokens = words[control::first_tokens + head.user];
        // Without speculation there is no output core: results go from the reducers to DRAM.
        const bool stores = !config::speculate && reduces;
        if (stores && head.last) {
            send_zeros(config::query_heads(), 32, pages(exact, head.user));
        }
        if (tokens == 0) {
            if (stores) {
                send_zeros(head.begin, head.end, pages(exact, head.user));
            }
            continue;
        }
        const attention::Share share = head_share::take();
        const attention::Part& part = share.part;
        const auto send_guess_or_partial = [&] {
            if (!config::speculate) {
                return;
            }
            if (reduces) {
                send_guess(head, output, exchange);
            } else if (share.sends_guess) {
                send_partials(partials);
            }
        };
        constexpr control::HeadRows rows{};
        if constexpr (config::hands_out_masses) {
            keeper.begin(rows, part, attention::tiles_of(tokens));
            auto order = chosen_heads::order_of(control::ends_of(tokens), share.chosen, round);
            keeper.fetch(order, mass_lines.get_noc_addr(item));
            keeper.keep_guess();
            send_guess_or_partial();
            keeper.keep_rest();
            if (reduces) {
                keeper.keep_last();
                if (alone) {
                    totals.take(dense_partials::totals);
                }
                keeper.take_totals();  // while compute divides by them
            }
        } else {
            send_guess_or_partial();
        }
        if (!reduces) {
            if (share.sends) {
                send_partials(partials);
            }
            if constexpr (config::hands_out_masses) {
                keeper.keep_last();
            }
        } else if constexpr (config::speculate) {
            const Tiles gathered = gathered_tiles(output, get_write_ptr(config::cb_exact), head.user);
            const uint64_t landed = output.at(get_semaphore(config::sem_user + head.user));
            send_result(head, gathered, landed, config::exact_landed);
            cb_pop_front(config::cb_result, config::partials());
        } else {
            send_rows(head, pages(exact, head.user));
            cb_pop_front(config::cb_result, config::partials());
        }
        if constexpr (config::hands_out_masses) {
            if (part.tiles() > 0) {
                if (!reduces) {
                    keeper.take_totals();
                }
                auto order = chosen_heads::order_of(control::ends_of(tokens), share.chosen, round);
                keeper.write(order, mass_lines.get_noc_addr(item), alone);
            }
        }
    }
    noc_async_full_barrier();
}
