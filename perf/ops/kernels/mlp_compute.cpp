// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// One row of tiles times a matrix of tiles.

#include <cstdint>

#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/matmul.h"
#include "api/compute/pack.h"

void kernel_main() {
    constexpr uint32_t depth = get_named_compile_time_arg_val("depth");
    constexpr uint32_t columns = get_named_compile_time_arg_val("columns");
    compute_kernel_hw_startup<SrcOrder::Reverse>(0, 1, 2);
    matmul_init(0, 1);
    for (uint32_t column = 0; column < columns; ++column) {
        tile_regs_acquire();
        for (uint32_t k = 0; k < depth; ++k) {
            cb_wait_front(0, 1);
            cb_wait_front(1, 1);
            matmul_tiles(0, 1, 0, 0, 0);
            cb_pop_front(0, 1);
            cb_pop_front(1, 1);
        }
        tile_regs_commit();
        cb_reserve_back(2, 1);
        tile_regs_wait();
        pack_tile(0, 2);
        tile_regs_release();
        cb_push_back(2, 1);
    }
}
