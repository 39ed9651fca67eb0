// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's writer (BRISC): the rows of its guess and exact result to where they are gathered, its partial result
// to the reducer of its group.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "control.hpp"
#include "tt_kernels/common/kernels/chunk_split.hpp"
#include "tt_kernels/common/kernels/tile_masks.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace {

constexpr uint32_t head_tiles = config::head_tiles;

struct Core {
    uint32_t x;
    uint32_t y;

    uint64_t at(uint32_t address) const { return get_noc_addr(x, y, address); }
};

Core core_arg(uint32_t& arg) {
    const uint32_t x = get_arg_val<uint32_t>(arg++);
    return {x, get_arg_val<uint32_t>(arg++)};
}

// Rows [begin, end) of the head_tiles tiles at `from` to the same rows of tiles of `to(tile)`.
template <typename To>
void send_rows(uint32_t from, uint32_t begin, uint32_t end, To to) {
    for (uint32_t tile = 0; tile < head_tiles; ++tile) {
        const uint32_t tile_at = from + tile * tile_rows::tile_bytes;
        tile_rows::for_each_piece(begin, end, [&](uint32_t offset, uint32_t bytes) {
            noc_async_write(tile_at + offset, to(tile) + offset, bytes);
        });
    }
}

// The rows of this item's head.
uint32_t first_row(uint32_t item) { return item % config::kv_heads() * config::rows_a_head(); }

// The tiles of a result on the core that gathers it: those of its user, behind the users before.
uint32_t gathered_tile(uint32_t item, uint32_t tile) {
    return (item / config::kv_heads() * head_tiles + tile) * tile_rows::tile_bytes;
}

// cb_guess and cb_exact lie at the same address on all cores. The output core's hold the results of all users; this
// core's pointers move, so the address is that of the start.
uint32_t start_of(uint32_t cb) {
    const auto& buffer = get_local_cb_interface(cb);
    return buffer.fifo_limit - buffer.fifo_size;
}

void send_result(uint32_t cb, uint32_t item, const Core& to, uint32_t base) {
    const uint32_t row = first_row(item);
    send_rows(get_read_ptr(cb), row, row + config::rows_a_head(), [&](uint32_t tile) {
        return to.at(base + gathered_tile(item, tile));
    });
}

// The guess goes to the core that speaks to the peer first, then to the one that verifies it.
void send_guess(uint32_t item, const Core& output, const Core& exchange) {
    cb_wait_front(config::cb_guess, head_tiles);
    if constexpr (config::has_peer) {
        send_result(config::cb_guess, item, exchange, get_write_ptr(config::cb_outgoing));
        noc_async_write_barrier();
        noc_semaphore_inc(exchange.at(get_semaphore(config::sem_outgoing)), 1);
    }
    send_result(config::cb_guess, item, output, start_of(config::cb_guess));
    noc_async_write_barrier();
    noc_semaphore_inc(output.at(get_semaphore(config::sem_user + item / config::kv_heads())), config::guess_landed);
    cb_pop_front(config::cb_guess, head_tiles);
}

void send_partial(uint32_t worker, const Core& reducer, uint32_t sent) {
    const uint32_t tile_bytes = get_tile_size(config::cb_partial);
    const uint32_t slot = worker - 1;
    cb_wait_front(config::cb_partial, config::partial_tiles);
    cb_wait_front(config::cb_partial_peak, 1);
    noc_semaphore_wait_min(
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(config::sem_credit)), sent);
    const uint32_t bytes = config::partial_tiles * tile_bytes;
    noc_async_write(
        get_read_ptr(config::cb_partial), reducer.at(get_write_ptr(config::cb_gathered) + slot * bytes), bytes);
    noc_async_write(
        get_read_ptr(config::cb_partial_peak),
        reducer.at(get_write_ptr(config::cb_gathered_peak) + slot * tile_rows::tile_bytes),
        tile_rows::tile_bytes);
    noc_async_write_barrier();
    noc_semaphore_inc(reducer.at(get_semaphore(config::sem_arrived)), 1);
    cb_pop_front(config::cb_partial, config::partial_tiles);
    cb_pop_front(config::cb_partial_peak, 1);
}

// Without speculation there is no output core: results go from the reducers to DRAM, rows no head owns as zeros.
template <typename Accessor>
void store_rows(uint32_t from, uint32_t item, uint32_t begin, uint32_t end, const Accessor& exact) {
    send_rows(from, begin, end, [&](uint32_t tile) {
        return exact.get_noc_addr(item / config::kv_heads() * head_tiles + tile);
    });
}

}  // namespace

void kernel_main() {
    uint32_t arg = 0;
    const uint32_t group = get_arg_val<uint32_t>(arg++);
    const uint32_t groups = get_arg_val<uint32_t>(arg++);
    const uint32_t worker = get_arg_val<uint32_t>(arg++);
    const uint32_t exact_address = get_arg_val<uint32_t>(arg++);
    const Core reducer = core_arg(arg);
    const Core output = core_arg(arg);
    const Core exchange = core_arg(arg);
    constexpr auto output_args = TensorAccessorArgs<0>();
    const auto exact = TensorAccessor(output_args, exact_address);

    cb_wait_front(config::cb_control_writer, 1);
    const volatile tt_l1_ptr uint32_t* words =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_control_writer));
    if (words[control::receiving]) {
        return;
    }
    const bool reduces = worker == attention::reducer;
    const bool speculates = config::speculate && worker == attention::speculative_worker(config::workers());
    // Zeros for rows that no worker computes; the reader has no more use for its scratch.
    const uint32_t zeros = get_write_ptr(config::cb_scratch);
    if (!config::speculate && reduces) {
        tile_masks::fill(zeros, head_tiles * tile_rows::tile_bytes, 0);
    }

    uint32_t sent = 0;
    for (uint32_t item = group; item < config::items(); item += groups) {
        const uint32_t tokens = words[control::first_tokens + item / config::kv_heads()];
        const uint32_t row = first_row(item);
        if (!config::speculate && reduces && item % config::kv_heads() == config::kv_heads() - 1) {
            store_rows(zeros, item, config::query_heads(), 32, exact);
        }
        if (tokens == 0) {
            if (!config::speculate && reduces) {
                store_rows(zeros, item, row, row + config::rows_a_head(), exact);
            }
            continue;
        }
        if (speculates) {
            send_guess(item, output, exchange);
        }
        if (!reduces) {
            if (attention::part_of(tokens, config::chunk_tiles(), worker, config::workers(), config::speculate).tiles()) {
                send_partial(worker, reducer, sent);
            }
            ++sent;  // the reducer opens its slots once for each head, whoever fills them
            continue;
        }
        cb_wait_front(config::cb_exact, head_tiles);
        if constexpr (config::speculate) {
            send_result(config::cb_exact, item, output, start_of(config::cb_exact));
            noc_async_write_barrier();
            noc_semaphore_inc(
                output.at(get_semaphore(config::sem_user + item / config::kv_heads())), config::exact_landed);
        } else {
            store_rows(get_read_ptr(config::cb_exact), item, row, row + config::rows_a_head(), exact);
            noc_async_write_barrier();
        }
        cb_pop_front(config::cb_exact, head_tiles);
    }
    noc_async_full_barrier();
}
