// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Adds up the chips' parts in chip order, then the residual, in float32; then the RMS norm of the sum: the workers' sums
// of squares come back over cb_all_squares.

#include <cstdint>

#include "api/compute/cb_api.h"
#include "api/compute/common.h"
#include "api/compute/compute_kernel_api.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/eltwise_binary_sfpu.h"
#include "api/compute/pack.h"
#include "api/compute/reconfig_data_format.h"
#include "api/compute/reg_api.h"
#include "api/compute/tile_move_copy.h"
#include "config.hpp"
#include "dense_rows.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "user_rows.hpp"

namespace {

// In use of a block.
constexpr uint32_t bands_of_half = config::face_rows / register_rows::band_rows;
constexpr register_rows::Bands bands = {
    0, config::dense ? (config::chunk_bytes + config::tail_bytes) / (config::tile_bytes / 2) * bands_of_half
                     : (config::users + register_rows::band_rows - 1) / register_rows::band_rows};

// The chips' parts, then the residual; registers beside the one that they are added to.
constexpr uint32_t summands = config::chips + config::has_residual, registers = 3;

// Packs a register as the next page of a float32 buffer.
void pack_exact(uint32_t cb, uint32_t from = 0) {
    cb_reserve_back(cb, 1);
    pack_reconfig_data_format(cb);
    pack_tile(from, cb);
    cb_push_back(cb, 1);
}

void finish(uint32_t cb) {
    tile_regs_commit();
    tile_regs_wait();
    pack_exact(cb);
    tile_regs_release();
}

void copy(uint32_t cb, uint32_t tile, uint32_t to) {
    reconfig_data_format_srca(cb);
    copy_init(cb);
    copy_tile(cb, tile, to);
}

void copy_summand(uint32_t block, uint32_t summand, uint32_t to) {
    if (summand < config::chips) {
        copy_tile(config::cb_parts, summand * config::blocks + block, to);
    } else {
        copy_tile(config::cb_residual, block, to);
    }
}

// Registers 1 to `others` = summands from `first` on, which are then added to register 0.
template <uint32_t others>
void add_summands(uint32_t block, uint32_t first) {
    for (uint32_t other = 0; other < others; ++other) {
        copy_summand(block, first + other, 1 + other);
    }
    user_rows::add_up<others>(bands);
}

// Register 0 = the sum of a block, by the vector unit: the matrix unit takes infinity - infinity for 0.
void add_up(uint32_t block) {
    copy_summand(block, 0, 0);
    uint32_t first = 1;
    for (; first + registers <= summands; first += registers) {
        add_summands<registers>(block, first);
    }
    if constexpr (constexpr uint32_t left = (summands - 1) % registers; left > 0) {
        add_summands<left>(block, first);
    }
}

void pack_rounded(uint32_t cb) {
    pack_reconfig_data_format(cb);
    cb_reserve_back(cb, 1);
    pack_tile(0, cb);
    cb_push_back(cb, 1);
}

void sums() {
    cb_wait_front(config::cb_parts, config::chips * config::blocks);
    if constexpr (config::has_residual) {
        cb_wait_front(config::cb_residual, config::blocks);
    }
    copy_init(config::cb_parts);
    user_rows::init();
    for (uint32_t block = 0; block < config::blocks; ++block) {
        tile_regs_acquire();
        add_up(block);
        if constexpr (config::dense) {
            dense_rows::sum_of_squares(bands);
        }
        tile_regs_commit();
        tile_regs_wait();
        if constexpr (config::dense) {
            pack_exact(config::cb_own_square, 1);
        }
        pack_exact(config::cb_exact);
        pack_rounded(config::cb_sum);
        tile_regs_release();
    }
}

// The sum of the squares of each row of this worker's columns.
void square() {
    cb_wait_front(config::cb_exact, config::blocks);
    tile_regs_acquire();
    for (uint32_t block = 0; block < config::blocks; ++block) {
        copy(config::cb_exact, block, 1);
        if (block == 0) {
            user_rows::add_squares<true>(bands);
        } else {
            user_rows::add_squares<false>(bands);
        }
    }
    user_rows::add_columns(bands);
    finish(config::cb_own_square);
}

// cb_scale = 1 / sqrt(mean of the squares + epsilon), in all columns of a row.
void scale(uint32_t per_column, uint32_t epsilon) {
    cb_wait_front(config::cb_all_squares, config::workers);
    tile_regs_acquire();
    copy(config::cb_all_squares, 0, 0);
    for (uint32_t worker = 1; worker < config::workers; ++worker) {
        copy_tile(config::cb_all_squares, worker, 1);
        user_rows::add(bands);
    }
    user_rows::scales(bands, per_column, epsilon);
    finish(config::cb_scale);
}

void normalise() {
    cb_wait_front(config::cb_scale, 1);
    cb_wait_front(config::cb_weights, config::blocks);
    for (uint32_t block = 0; block < config::blocks; ++block) {
        tile_regs_acquire();
        copy(config::cb_exact, block, 0);
        copy_tile(config::cb_scale, 0, 1);
        mul_binary_tile_init();
        mul_binary_tile(0, 1, 0);
        copy(config::cb_weights, block, 1);
        mul_binary_tile_init();
        mul_binary_tile(0, 1, 0);
        tile_regs_commit();
        tile_regs_wait();
        pack_rounded(config::cb_normed);
        tile_regs_release();
    }
}

void normalise_dense(uint32_t per_column, uint32_t epsilon) {
    static_assert(!config::dense || config::blocks == 1);
    constexpr uint32_t worker_bands =
        (config::workers + register_rows::band_rows - 1) / register_rows::band_rows;
    cb_wait_front(config::cb_weights, 1);
    tile_regs_acquire();
    copy(config::cb_weights, 0, 2);
    cb_wait_front(config::cb_exact, 1);
    copy(config::cb_exact, 0, 0);
    cb_wait_front(config::cb_all_squares, 1);
    copy_tile(config::cb_all_squares, 0, 1);
    dense_rows::normalise<worker_bands>(bands, per_column, epsilon);
    tile_regs_commit();
    tile_regs_wait();
    pack_rounded(config::cb_normed);
    tile_regs_release();
}

}  // namespace

void kernel_main() {
    compute_kernel_hw_startup(config::cb_parts, config::cb_parts, config::cb_sum);
    sums();
    if constexpr (!config::dense) {
        square();
    }
    if constexpr (config::has_norm && config::dense) {
        normalise_dense(COMMON_ARG(per_column), COMMON_ARG(epsilon));
    } else if constexpr (config::has_norm) {
        scale(COMMON_ARG(per_column), COMMON_ARG(epsilon));
        normalise();
    }
}
