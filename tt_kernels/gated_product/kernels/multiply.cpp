// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The product of a core's tiles. Sharded tensors are in L1, complete before the launch: the buffers are their shards, a
// block of gate and one of up, and nothing waits for their pages. Else tiles come and go in groups.

#include <cstdint>

#include "api/compute/cb_api.h"
#include "api/compute/common.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/pack.h"
#include "api/compute/reg_api.h"
#include "api/compute/tile_move_copy.h"
#include "gated_rows.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t rows = get_named_compile_time_arg_val("cb_rows");
    constexpr uint32_t product = get_named_compile_time_arg_val("cb_product");
    constexpr uint32_t users = get_named_compile_time_arg_val("users");
    constexpr bool sharded = get_named_compile_time_arg_val("sharded");
    const uint32_t tiles = RUNTIME_ARG(tiles);

    compute_kernel_hw_startup(rows, product);
    copy_init(rows);
    gated_rows::init();
    for (uint32_t done = 0; done < tiles; done += gated_rows::pairs) {
        const uint32_t count = tiles - done < gated_rows::pairs ? tiles - done : gated_rows::pairs;
        const uint32_t first = sharded ? done : 0, up = sharded ? tiles : count;
        if constexpr (!sharded) {
            cb_wait_front(rows, 2 * count);
        }
        tile_regs_acquire();
        for (uint32_t i = 0; i < count; ++i) {
            copy_tile(rows, first + i, i);
            copy_tile(rows, up + first + i, gated_rows::pairs + i);
        }
        for (uint32_t i = 0; i < count; ++i) {
            gated_rows::multiply<users>(i);
        }
        tile_regs_commit();
        if constexpr (!sharded) {
            cb_pop_front(rows, 2 * count);
            cb_reserve_back(product, count);
        }
        tile_regs_wait();
        for (uint32_t i = 0; i < count; ++i) {
            pack_tile<true>(i, product, first + i);
        }
        tile_regs_release();
        if constexpr (!sharded) {
            cb_push_back(product, count);
        }
    }
}
