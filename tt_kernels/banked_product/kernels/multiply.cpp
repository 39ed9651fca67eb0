// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Multiplies blocks of the rows by blocks of this core's columns; the packer adds up the blocks in the result's L1. Cores
// without columns only make room for the next rows.

#include <cstdint>

#include "api/compute/cb_api.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/matmul.h"
#include "api/compute/pack.h"
#include "api/compute/reg_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t cb_rows = get_named_compile_time_arg_val("cb_rows");
    constexpr uint32_t cb_weight = get_named_compile_time_arg_val("cb_weight");
    constexpr uint32_t cb_result = get_named_compile_time_arg_val("cb_result");
    constexpr uint32_t blocks = get_named_compile_time_arg_val("blocks");
    constexpr uint32_t inner = get_named_compile_time_arg_val("inner");
    constexpr uint32_t columns = get_named_compile_time_arg_val("columns");
    constexpr uint32_t high = get_named_compile_time_arg_val("high");
    constexpr uint32_t piece_rows = get_named_compile_time_arg_val("piece_rows");
    constexpr uint32_t piece_columns = get_named_compile_time_arg_val("piece_columns");

    if (RUNTIME_ARG(count) == 0) {
        for (uint32_t block = 0; block < blocks; ++block) {
            cb_wait_front(cb_rows, high * inner);
            cb_pop_front(cb_rows, high * inner);
        }
        return;
    }
    compute_kernel_hw_startup<SrcOrder::Reverse>(cb_rows, cb_weight, cb_result);
    matmul_block_init(cb_rows, cb_weight, 0, piece_columns, piece_rows, inner);
    cb_reserve_back(cb_result, high * columns);
    for (uint32_t block = 0; block < blocks; ++block) {
        pack_reconfig_l1_acc(block > 0);
        cb_wait_front(cb_rows, high * inner);
        cb_wait_front(cb_weight, inner * columns);
        for (uint32_t row = 0; row < high; row += piece_rows) {
            for (uint32_t column = 0; column < columns; column += piece_columns) {
                tile_regs_acquire();
                for (uint32_t k = 0; k < inner; ++k) {
                    matmul_block(
                        cb_rows, cb_weight, row * inner + k, k * columns + column, 0, 0, piece_columns,
                        piece_rows, inner);
                }
                tile_regs_commit();
                tile_regs_wait();
                for (uint32_t i = 0; i < piece_rows; ++i) {
                    for (uint32_t j = 0; j < piece_columns; ++j) {
                        pack_tile<true>(i * piece_columns + j, cb_result, (row + i) * columns + column + j);
                    }
                }
                tile_regs_release();
            }
        }
        cb_pop_front(cb_rows, high * inner);
        cb_pop_front(cb_weight, inner * columns);
    }
    pack_reconfig_l1_acc(0);
    cb_push_back(cb_result, high * columns);
}
