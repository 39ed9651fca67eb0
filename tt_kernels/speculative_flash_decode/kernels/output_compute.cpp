// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The output core's compute kernel: for each user the squared norm of the exact result and its squared distance from
// the guess, a tile each, as register_rows::sum_squares leaves them.

#include <cstdint>

#include "api/compute/compute_kernel_hw_startup.h"
#include "config.hpp"
#include "control.hpp"
#include "tt_kernels/common/kernels/online_softmax.hpp"
#include "tt_kernels/common/kernels/register_rows.hpp"

namespace {

constexpr uint32_t head_tiles = config::head_tiles;
static_assert(head_tiles <= online_softmax::registers);

// The next tile of cb_verdict = the sum of squares in the registers.
void push_sum(uint32_t factor) {
    register_rows::sum_squares<head_tiles>(register_rows::bands_of(0, config::query_heads()), factor);
    cb_reserve_back(config::cb_verdict, 1);
    online_softmax::pack_registers(config::cb_verdict, 0, 1);
    cb_push_back(config::cb_verdict, 1);
}

void push_norm(uint32_t threshold_squared) {
    copy_init(config::cb_exact);
    tile_regs_acquire();
    cb_wait_front(config::cb_exact, head_tiles);
    for (uint32_t i = 0; i < head_tiles; ++i) {
        copy_tile(config::cb_exact, i, i);
    }
    push_sum(threshold_squared);
}

// The operands are bfloat16, so their difference and its square are as good as float32 holds them.
void push_distance() {
    constexpr uint32_t one = 0x3F800000;
    sub_init(config::cb_guess, config::cb_exact);
    tile_regs_acquire();
    for (uint32_t i = 0; i < head_tiles; ++i) {
        sub_tiles(config::cb_guess, config::cb_exact, i, i, i);
    }
    push_sum(one);
}

}  // namespace

void kernel_main() {
    const uint32_t threshold_squared = get_arg_val<uint32_t>(0);
    cb_wait_front(config::cb_control, 1);
    if (read_tile_value(config::cb_control, 0, control::receiving)) {
        return;
    }
    compute_kernel_hw_startup(config::cb_guess, config::cb_exact, config::cb_verdict);
    for (uint32_t user = 0; user < config::users(); ++user) {
        cb_wait_front(config::cb_guess, head_tiles);
        push_norm(threshold_squared);
        push_distance();
        cb_pop_front(config::cb_guess, head_tiles);
        cb_pop_front(config::cb_exact, head_tiles);
    }
}
