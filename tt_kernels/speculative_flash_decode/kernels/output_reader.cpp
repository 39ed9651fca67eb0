// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The output core's reader (NCRISC): waits until the heads of a user have landed here, passes them to compute for
// verification and writes them to DRAM.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "control.hpp"
#include "tt_kernels/common/kernels/fetch_control.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"
#include "unused_rows.hpp"

namespace {

constexpr uint32_t head_tiles = config::head_tiles;

template <typename Accessor>
void emit(uint32_t cb, uint32_t user, const Accessor& output) {
    cb_reserve_back(cb, head_tiles);
    const uint32_t from = get_write_ptr(cb);
    cb_push_back(cb, head_tiles);
    for (uint32_t tile = 0; tile < head_tiles; ++tile) {
        noc_async_write_page(user * head_tiles + tile, output, from + tile * tile_rows::tile_bytes);
    }
}

void wait_for_heads(uint32_t user, uint32_t unit) {
    volatile tt_l1_ptr uint32_t* landed =
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(config::sem_user + user));
    while ((*landed / unit & 0xFFFF) < config::kv_heads()) {
        invalidate_l1_cache();
    }
}

}  // namespace

void kernel_main() {
    constexpr auto output_args = ACCESSOR_ARGS(output);
    const auto exact = TensorAccessor(output_args, RUNTIME_ARG(exact));
    const auto guess = TensorAccessor(output_args, RUNTIME_ARG(guess));

    const volatile tt_l1_ptr uint32_t* words =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_write_ptr(config::cb_control));
    control::share();
    if (words[control::receiving]) {
        return;
    }
    const uint32_t guesses = get_write_ptr(config::cb_guess);
    const uint32_t exacts = get_write_ptr(config::cb_exact);
    unused_rows::clear(guesses);
    unused_rows::clear(exacts);
    for (uint32_t user = 0; user < config::users(); ++user) {
        if (words[control::first_tokens + user] == 0) {
            unused_rows::clear_user(guesses, user);
            unused_rows::clear_user(exacts, user);
        }
    }
    noc_async_read_barrier();

    for (uint32_t user = 0; user < config::users(); ++user) {
        const bool skipped = words[control::first_tokens + user] == 0;
        if (!skipped) {
            wait_for_heads(user, config::guess_landed);
        }
        emit(config::cb_guess, user, guess);
        if (!skipped) {
            wait_for_heads(user, config::exact_landed);
        }
        emit(config::cb_exact, user, exact);
    }
    noc_async_write_barrier();
}
