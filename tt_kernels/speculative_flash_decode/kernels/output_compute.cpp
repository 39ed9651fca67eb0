// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The output core's compute kernel: for each user ||guess - exact||^2, ||exact||^2 and the latter times threshold^2, as
// register_rows::sums_of_squares leaves them in a tile.

#include <cstdint>

#include "api/compute/compute_kernel_hw_startup.h"
#include "config.hpp"
#include "control.hpp"
#include "tt_kernels/common/kernels/online_softmax.hpp"
#include "tt_kernels/common/kernels/register_rows.hpp"

namespace {

constexpr uint32_t head_tiles = config::head_tiles;
static_assert(head_tiles <= online_softmax::registers);

// Uses one set of registers. The operands are bfloat16, so their difference is as exact as float32 can hold it.
void verify(register_rows::Bands bands, uint32_t threshold_sq) {
    copy_init(config::cb_exact);
    cb_reserve_back(config::cb_norms, 1);
    tile_regs_acquire();
    cb_wait_front(config::cb_guess, head_tiles);
    cb_wait_front(config::cb_exact, head_tiles);
    for (uint32_t i = 0; i < head_tiles; ++i) {
        copy_tile(config::cb_exact, i, i);
    }
    register_rows::hold_sum_of_squares<head_tiles>(bands);
    sub_init(config::cb_guess, config::cb_exact);
    for (uint32_t i = 0; i < head_tiles; ++i) {
        sub_tiles(config::cb_guess, config::cb_exact, i, i, i);
    }
    register_rows::sums_of_squares<head_tiles>(bands, threshold_sq);
    online_softmax::pack_registers(config::cb_norms, 0, 1);
    cb_push_back(config::cb_norms, 1);
    cb_pop_front(config::cb_guess, head_tiles);
    cb_pop_front(config::cb_exact, head_tiles);
}

}  // namespace

void kernel_main() {
    const uint32_t threshold_sq = RUNTIME_ARG(threshold_sq);
    cb_wait_front(config::cb_control, 1);
    if (read_tile_value(config::cb_control, 0, control::receiving)) {
        return;
    }
    compute_kernel_hw_startup(config::cb_guess, config::cb_exact, config::cb_norms);
    const auto bands = register_rows::bands_of(0, config::query_heads());
    for (uint32_t user = 0; user < config::users(); ++user) {
        verify(bands, threshold_sq);
    }
}
