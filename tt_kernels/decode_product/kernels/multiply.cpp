// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Multiplies blocks of the rows by blocks of this bank's columns, in float32. Few columns stay in the registers from the
// first block to the last; of more, the packer adds up the blocks in the result's L1. The last block's columns are handed
// out piece by piece. A last piece may multiply tiles of the next row too, which are not kept.

#include <cstdint>

#include "api/compute/cb_api.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/matmul.h"
#include "api/compute/pack.h"
#include "api/compute/reg_api.h"
#include "api/compute/tile_move_copy.h"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t cb_rows = get_named_compile_time_arg_val("cb_rows");
    constexpr uint32_t cb_weight = get_named_compile_time_arg_val("cb_weight");
    constexpr uint32_t cb_result = get_named_compile_time_arg_val("cb_result");
    constexpr uint32_t blocks = get_named_compile_time_arg_val("blocks");
    constexpr uint32_t inner = get_named_compile_time_arg_val("inner");
    constexpr uint32_t columns = get_named_compile_time_arg_val("columns");
    constexpr uint32_t piece = get_named_compile_time_arg_val("piece");
    const uint32_t count = RUNTIME_ARG(count);
    const auto multiply = [](uint32_t column) {
        for (uint32_t k = 0; k < inner; ++k) {
            matmul_block(cb_rows, cb_weight, k, k * columns + column, 0, 0, piece, 1, inner);
        }
    };
    compute_kernel_hw_startup<SrcOrder::Reverse>(cb_rows, cb_weight, cb_result);
    matmul_block_init(cb_rows, cb_weight, 0, piece, 1, inner);
    cb_reserve_back(cb_result, count);
    if constexpr (piece == columns) {
        tile_regs_acquire();
        for (uint32_t block = 0; block < blocks; ++block) {
            cb_wait_front(cb_rows, inner);
            cb_wait_front(cb_weight, inner * columns);
            multiply(0);
            cb_pop_front(cb_rows, inner);
            cb_pop_front(cb_weight, inner * columns);
        }
        tile_regs_commit();
        tile_regs_wait();
        for (uint32_t column = 0; column < count; ++column) {
            pack_tile(column, cb_result);
        }
        tile_regs_release();
        cb_push_back(cb_result, count);
        return;
    }

    for (uint32_t block = 0; block < blocks; ++block) {
        const bool last = block + 1 == blocks;
        pack_reconfig_l1_acc(block > 0);
        cb_wait_front(cb_rows, inner);
        cb_wait_front(cb_weight, inner * columns);
        for (uint32_t column = 0; column < count; column += piece) {
            tile_regs_acquire();
            multiply(column);
            tile_regs_commit();
            tile_regs_wait();
            const uint32_t kept = count - column < piece ? count - column : piece;
            for (uint32_t i = 0; i < kept; ++i) {
                pack_tile<true>(i, cb_result, last ? i : column + i);
            }
            tile_regs_release();
            if (last) {
                cb_push_back(cb_result, kept);
            }
        }
        cb_pop_front(cb_rows, inner);
        cb_pop_front(cb_weight, inner * columns);
    }
    pack_reconfig_l1_acc(0);
}
