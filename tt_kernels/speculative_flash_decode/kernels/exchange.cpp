// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The exchange core (BRISC): what common/kernels/guess_exchange.hpp says, with the rows of the heads that workers put
// together here.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "tt_kernels/common/kernels/guess_exchange.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"
#include "unused_rows.hpp"

namespace {

inline uint32_t tiles() { return config::users() * config::head_tiles; }

void wait_for_heads(const volatile tt_l1_ptr uint32_t* words, uint32_t base) {
    unused_rows::clear(base);
    uint32_t heads = 0;
    for (uint32_t user = 0; user < config::users(); ++user) {
        if (words[control::first_tokens + user] == 0) {
            unused_rows::clear_user(base, user);
        } else {
            heads += config::kv_heads();
        }
    }
    noc_async_read_barrier();
    // Cores of the same program: they always come.
    noc_semaphore_wait_min(
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(config::sem_outgoing)), heads);
}

template <typename Accessor>
bool send_guesses(PeerLink& link, uint32_t base, const Accessor& peer_exact) {
    for (uint32_t tile = 0; tile < tiles(); ++tile) {
        if (!guess_exchange::send_tile(link, base + tile * tile_rows::tile_bytes, peer_exact, tile)) {
            return false;
        }
    }
    return true;
}

// The guess that arrived in a receiver's `exact` is its guess too.
template <typename Output>
void copy_guess(uint32_t base, const Output& exact, const Output& guess) {
    for (uint32_t tile = 0; tile < tiles(); ++tile) {
        noc_async_read_page(tile, exact, base + tile * tile_rows::tile_bytes);
    }
    noc_async_read_barrier();
    for (uint32_t tile = 0; tile < tiles(); ++tile) {
        noc_async_write_page(tile, guess, base + tile * tile_rows::tile_bytes);
    }
}

}  // namespace

void kernel_main() {
    constexpr auto output_args = ACCESSOR_ARGS(output);
    const auto exact = TensorAccessor(output_args, RUNTIME_ARG(exact));
    const auto guess = TensorAccessor(output_args, RUNTIME_ARG(guess));
    const uint32_t base = get_write_ptr(config::cb_outgoing);
    guess_exchange::run(
        [&](const auto* words) { wait_for_heads(words, base); },
        [&](PeerLink& link, const auto& peer_exact) { return send_guesses(link, base, peer_exact); },
        [&] { copy_guess(base, exact, guess); });
}
