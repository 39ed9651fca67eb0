// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The output core's compute kernel: for each user the squared distance of guess and exact result, the squared norm
// of the exact result, and that norm times threshold^2, each a float32 in every element of a tile.

#include <cstdint>

#include "api/compute/compute_kernel_hw_startup.h"
#include "config.hpp"
#include "control.hpp"
#include "tt_kernels/common/kernels/online_softmax.hpp"

namespace {

using online_softmax::pack_registers;

constexpr uint32_t head_tiles = config::head_tiles;
static_assert(head_tiles <= online_softmax::registers);

// cb_difference = guess - exact. The operands are bfloat16, so the difference is exact in float32.
void subtract() {
    cb_reserve_back(config::cb_difference, head_tiles);
    reconfig_data_format(config::cb_guess, config::cb_exact);
    sub_init(config::cb_guess, config::cb_exact);
    pack_reconfig_data_format(config::cb_difference);
    tile_regs_acquire();
    for (uint32_t i = 0; i < head_tiles; ++i) {
        sub_tiles(config::cb_guess, config::cb_exact, i, i, i);
    }
    pack_registers(config::cb_difference, 0, head_tiles);
    cb_push_back(config::cb_difference, head_tiles);
}

// Register `to` = the squares of `from` added up over its tiles; products accumulate in the float32 registers.
void square(uint32_t from, uint32_t to) {
    reconfig_data_format(from, from);
    mul_init(from, from);
    for (uint32_t i = 0; i < head_tiles; ++i) {
        mul_tiles(from, from, i, i, to);
    }
}

// cb_squares = the squares of the difference and of the exact result, a tile each. The latter need not wait.
void square_both() {
    cb_reserve_back(config::cb_squares, 2);
    tile_regs_acquire();
    square(config::cb_exact, 1);
    cb_wait_front(config::cb_difference, head_tiles);
    square(config::cb_difference, 0);
    pack_registers(config::cb_squares, 0, 2);
    cb_push_back(config::cb_squares, 2);
}

// Replaces the two tiles in cb_squares by their row sums, in every column.
void sum_rows() {
    cb_wait_front(config::cb_squares, 2);
    reconfig_data_format<SrcOrder::Reverse>(config::cb_squares, config::cb_unit);
    matmul_init(config::cb_squares, config::cb_unit, 0);
    tile_regs_acquire();
    matmul_tiles(config::cb_squares, config::cb_unit, 0, 0, 0);
    matmul_tiles(config::cb_squares, config::cb_unit, 1, 0, 1);
    cb_pop_front(config::cb_squares, 2);
    cb_reserve_back(config::cb_squares, 2);
    pack_registers(config::cb_squares, 0, 2);
    cb_push_back(config::cb_squares, 2);
}

// cb_verdict = the column sums of those: distance, norm, and norm times threshold^2.
void sum_columns(uint32_t threshold_squared) {
    cb_wait_front(config::cb_squares, 2);
    cb_reserve_back(config::cb_verdict, 3);
    reconfig_data_format<SrcOrder::Reverse>(config::cb_unit, config::cb_squares);
    matmul_init(config::cb_unit, config::cb_squares, 0);
    pack_reconfig_data_format(config::cb_verdict);
    tile_regs_acquire();
    matmul_tiles(config::cb_unit, config::cb_squares, 0, 0, 0);
    matmul_tiles(config::cb_unit, config::cb_squares, 0, 1, 1);
    matmul_tiles(config::cb_unit, config::cb_squares, 0, 1, 2);
    binop_with_scalar_tile_init();
    mul_unary_tile(2, threshold_squared);
    pack_registers(config::cb_verdict, 0, 3);
    cb_push_back(config::cb_verdict, 3);
    cb_pop_front(config::cb_squares, 2);
}

}  // namespace

void kernel_main() {
    const uint32_t threshold_squared = get_arg_val<uint32_t>(0);
    cb_wait_front(config::cb_control, 1);
    if (read_tile_value(config::cb_control, 0, control::receiving)) {
        return;
    }
    compute_kernel_hw_startup(config::cb_guess, config::cb_exact, config::cb_difference);
    cb_wait_front(config::cb_unit, 1);
    for (uint32_t user = 0; user < config::users(); ++user) {
        cb_wait_front(config::cb_guess, head_tiles);
        cb_wait_front(config::cb_exact, head_tiles);
        subtract();
        square_both();
        sum_rows();
        sum_columns(threshold_squared);
        cb_pop_front(config::cb_difference, head_tiles);
        cb_pop_front(config::cb_guess, head_tiles);
        cb_pop_front(config::cb_exact, head_tiles);
    }
}
