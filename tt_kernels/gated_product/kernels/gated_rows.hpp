// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// silu(gate) * up by the vector unit on the bands of 4 rows that hold users. A vector holds the even or the odd columns
// of a band in one face (16 x 16), see common/kernels/register_rows.hpp. It computes in float32 and rounds once.

#pragma once

#include <cstdint>

#include "api/compute/compute_kernel_api.h"

namespace gated_rows {

// Tiles of each input that half of the bfloat16 registers hold: register i is the gate of pair i, pairs + i its up.
constexpr uint32_t pairs = 4;

}  // namespace gated_rows

#if defined(TRISC_MATH)

#include "ckernel_sfpu_exp.h"
#include "ckernel_sfpu_recip.h"
#include "llk_math_eltwise_unary_sfpu_params.h"
#include "sfpi.h"

namespace gated_rows::vector {

constexpr uint32_t tile_stride = 32, face_vectors = 8;
constexpr uint32_t face_rows = 16, band_rows = 4, vectors_per_band = 2;

// Vectors with users in each of the two faces whose first row is row `first`.
constexpr uint32_t vectors_of(uint32_t users, uint32_t first) {
    const uint32_t rows = users <= first ? 0 : users - first < face_rows ? users - first : face_rows;
    return (rows + band_rows - 1) / band_rows * vectors_per_band;
}

template <uint32_t users>
inline void multiply() {
#pragma GCC unroll 1
    for (uint32_t face = 0; face < 4; ++face) {
        const uint32_t vectors = face < 2 ? vectors_of(users, 0) : vectors_of(users, face_rows);
#pragma GCC unroll 1
        for (uint32_t i = 0; i < vectors; ++i) {
            const sfpi::vFloat gate = sfpi::dst_reg[0];
            const sfpi::vFloat divisor = 1.0f + ckernel::sfpu::_sfpu_exp_fp32_accurate_<>(-gate);
            sfpi::vFloat found = sfpi::dst_reg[0] * ckernel::sfpu::sfpu_reciprocal_iter<2>(divisor);
            found = found * sfpi::dst_reg[pairs * tile_stride];
            sfpi::dst_reg[0] = sfpi::convert<sfpi::vFloat16b>(found, sfpi::RoundMode::Nearest);
            sfpi::dst_reg++;
        }
        for (uint32_t i = vectors; i < face_vectors; ++i) {
            sfpi::dst_reg++;
        }
    }
}

}  // namespace gated_rows::vector

#endif

namespace gated_rows {

inline void init() { ckernel::silu_tile_init(); }

// Register `pair` = its product with register pairs + `pair` in the rows of users, and others of their bands.
template <uint32_t users>
inline void multiply([[maybe_unused]] uint32_t pair) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(vector::multiply<users>, pair, ckernel::VectorMode::None)));
}

}  // namespace gated_rows
