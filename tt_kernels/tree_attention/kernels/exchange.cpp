// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The exchange core (BRISC): what common/kernels/guess_exchange.hpp says, with the guess that workers wrote to DRAM. A
// receiver's guess is in `exact` alone.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "control.hpp"
#include "fetch_control.hpp"
#include "job_sums.hpp"
#include "packed_rows.hpp"
#include "tt_kernels/common/kernels/guess_exchange.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace {

constexpr uint32_t batch = config::tiles_in_flight / 2;

// Sends the guess's tiles, while those of the next batch are read.
template <typename Accessor>
bool send_guess(PeerLink& link, const Accessor& guess, const Accessor& peer_exact) {
    const uint32_t base = get_write_ptr(config::cb_outgoing);
    const uint32_t count =
        config::kv_heads() * config::group_heads() * packed_rows::tensor_tiles() * config::head_tiles;
    const auto place = [base](uint32_t tile) {
        return base + tile % config::tiles_in_flight * tile_rows::tile_bytes;
    };
    const auto read = [&](uint32_t begin) {
        for (uint32_t tile = begin; tile < begin + batch && tile < count; ++tile) {
            noc_async_read_page(tile, guess, place(tile));
        }
    };
    read(0);
    for (uint32_t begin = 0; begin < count; begin += batch) {
        noc_async_read_barrier();
        read(begin + batch);
        for (uint32_t tile = begin; tile < begin + batch && tile < count; ++tile) {
            if (!guess_exchange::send_tile(link, place(tile), peer_exact, tile)) {
                return false;
            }
        }
    }
    return true;
}

}  // namespace

void kernel_main() {
    const uint64_t timeout = bounded::cycles_arg(RUNTIME_INDEX(timeout));
    constexpr uint32_t deciding_core = RUNTIME_INDEX(deciding_core);
    const uint64_t delivery = get_noc_addr(
        get_arg_val<uint32_t>(deciding_core), get_arg_val<uint32_t>(deciding_core + 1),
        get_semaphore(config::sem_delivery));
    constexpr auto output_args = ACCESSOR_ARGS(output);
    constexpr auto norm_args = ACCESSOR_ARGS(norm);
    const auto guess = TensorAccessor(output_args, RUNTIME_ARG(guess));
    const auto peer_exact = TensorAccessor(output_args, RUNTIME_ARG(peer_exact));
    const auto priorities = TensorAccessor(ACCESSOR_ARGS(priority), RUNTIME_ARG(priority));

    const uint32_t page = get_write_ptr(config::cb_control);
    control::fetch(page, ACCESSOR_ARGS(prefix), ACCESSOR_ARGS(gathered));
    const volatile tt_l1_ptr uint32_t* words = reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(page);
    guess_exchange::run(
        RUNTIME_ARG(state), timeout, RUNTIME_INDEX(link),
        {!words[control::receiving], words[control::alone] != 0, control::active_users(words), delivery},
        priorities, page + control::first_line,
        [] { job_sums::wait_for(config::sem_guessed, jobs::count()); },
        [&](PeerLink& link) { return send_guess(link, guess, peer_exact); },
        [&] {
            guess_exchange::clear_numbers(
                TensorAccessor(norm_args, RUNTIME_ARG(distance_sq)),
                TensorAccessor(norm_args, RUNTIME_ARG(norm_sq)), config::users());
        });
}
