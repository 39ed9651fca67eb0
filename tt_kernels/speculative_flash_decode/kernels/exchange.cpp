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

void wait_for_heads(const volatile tt_l1_ptr uint32_t* words, uint32_t base) {
    unused_rows::clear(base, config::outgoing_tile_bytes());
    uint32_t heads = 0;
    for (uint32_t user = 0; user < config::users(); ++user) {
        if (words[control::first_tokens + user] == 0) {
            unused_rows::clear_user(base, user, config::outgoing_tile_bytes());
        } else {
            heads += config::kv_heads();
        }
    }
    noc_async_read_barrier();
    // Cores of the same program: they always come.
    noc_semaphore_wait_min(
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(config::sem_outgoing)), heads);
}

}  // namespace

void kernel_main() {
    const uint32_t base = get_write_ptr(config::cb_outgoing);
    guess_exchange::run(
        [&](const auto* words) { wait_for_heads(words, base); },
        [&](PeerLink& link, const auto& peer_exact) {
            return guess_exchange::send_tiles(
                link, base, config::outgoing_tile_bytes(), peer_exact, 0,
                config::users() * config::head_tiles);
        });
}
