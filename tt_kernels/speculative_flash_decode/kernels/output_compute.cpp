// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The output core's compute kernel: for each user ||guess - exact||^2, ||exact||^2 and the latter times threshold^2, as
// register_rows::sums_of_squares leaves them in a tile.

#include <cstdint>

#include "api/compute/compute_kernel_hw_startup.h"
#include "config.hpp"
#include "control.hpp"
#include "tt_kernels/common/kernels/guess_distance.hpp"
#include "tt_kernels/common/kernels/register_rows.hpp"

void kernel_main() {
    const uint32_t threshold_sq = RUNTIME_ARG(threshold_sq);
    cb_wait_front(config::cb_control, 1);
    if (read_tile_value(config::cb_control, 0, control::receiving)) {
        return;
    }
    compute_kernel_hw_startup(config::cb_guess, config::cb_exact, config::cb_norms);
    const auto bands = register_rows::bands_of(0, config::query_heads());
    for (uint32_t user = 0; user < config::users(); ++user) {
        guess_distance::measure<config::head_tiles>(
            config::cb_guess, config::cb_exact, config::cb_norms, bands, threshold_sq);
    }
}
