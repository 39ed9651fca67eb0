// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Rotates the tiles of a head, whose shard is complete before the launch, by the vector unit; those of a value head are
// only packed anew, in the cache's format.

#include <cstdint>

#include "api/compute/cb_api.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/pack.h"
#include "api/compute/reg_api.h"
#include "api/compute/tile_move_copy.h"
#include "rotation.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t fused = get_named_compile_time_arg_val("cb_fused");
    constexpr uint32_t cos = get_named_compile_time_arg_val("cb_cos");
    constexpr uint32_t sin = get_named_compile_time_arg_val("cb_sin");
    constexpr uint32_t packed = get_named_compile_time_arg_val("cb_packed");
    constexpr bool turned = get_named_compile_time_arg_val("turned");
    constexpr uint32_t tiles = get_named_compile_time_arg_val("tiles");
    constexpr uint32_t users = get_named_compile_time_arg_val("users");

    compute_kernel_hw_startup(fused, turned ? cos : fused, packed);
    copy_init(fused);
    cb_reserve_back(packed, tiles);
    if constexpr (turned) {
        rotation::init();
        cb_wait_front(cos, tiles);
        cb_wait_front(sin, tiles);
    }
    for (uint32_t tile = 0; tile < tiles; ++tile) {
        tile_regs_acquire();
        copy_tile(fused, tile, 0);
        if constexpr (turned) {
            copy_tile(cos, tile, rotation::cos);
            copy_tile(sin, tile, rotation::sin);
            rotation::rotate<users>();
        }
        tile_regs_commit();
        tile_regs_wait();
        pack_tile(0, packed);
        tile_regs_release();
    }
    cb_push_back(packed, tiles);
}
