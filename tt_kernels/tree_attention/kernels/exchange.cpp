// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The exchange core (BRISC): what common/kernels/guess_exchange.hpp says, with the guess that workers wrote to DRAM. A
// receiver's guess is in `exact` alone.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
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
        const uint32_t tiles = batch < count - begin ? batch : count - begin;
        if (!guess_exchange::send_tiles(
                link, place(begin), tile_rows::tile_bytes, peer_exact, begin, tiles)) {
            return false;
        }
    }
    return true;
}

}  // namespace

void kernel_main() {
    const auto guess = TensorAccessor(ACCESSOR_ARGS(output), RUNTIME_ARG(guess));
    guess_exchange::run(
        [](const auto*) { job_sums::wait_for(config::sem_guessed, jobs::count()); },
        [&](PeerLink& link, const auto& peer_exact) { return send_guess(link, guess, peer_exact); });
}
