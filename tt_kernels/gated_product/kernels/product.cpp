// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The product of a core's tiles. All three buffers are the tensors' shards, complete before the launch: nothing waits
// for their pages, and no other kernel moves them.

#include <cstdint>

#include "api/compute/cb_api.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/pack.h"
#include "api/compute/reg_api.h"
#include "api/compute/tile_move_copy.h"
#include "gated_rows.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t gate = get_named_compile_time_arg_val("cb_gate");
    constexpr uint32_t up = get_named_compile_time_arg_val("cb_up");
    constexpr uint32_t product = get_named_compile_time_arg_val("cb_product");
    constexpr uint32_t tiles = get_named_compile_time_arg_val("tiles");
    constexpr uint32_t users = get_named_compile_time_arg_val("users");

    compute_kernel_hw_startup(gate, up, product);
    copy_init(gate);
    gated_rows::init();
    for (uint32_t first = 0; first < tiles; first += gated_rows::pairs) {
        const uint32_t count = tiles - first < gated_rows::pairs ? tiles - first : gated_rows::pairs;
        tile_regs_acquire();
        for (uint32_t i = 0; i < count; ++i) {
            copy_tile(gate, first + i, i);
            copy_tile(up, first + i, gated_rows::pairs + i);
        }
        for (uint32_t i = 0; i < count; ++i) {
            gated_rows::multiply<users>(i);
        }
        tile_regs_commit();
        tile_regs_wait();
        for (uint32_t i = 0; i < count; ++i) {
            pack_tile<true>(i, product, first + i);
        }
        tile_regs_release();
    }
}
