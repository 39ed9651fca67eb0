// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The norm of one user's columns that lie dense in a tile, by the vector unit; for compute kernels with float32
// registers. A vector holds the even or the odd columns of 4 rows in a face, see common/kernels/register_rows.hpp.

#pragma once

#include <cstdint>

#include "tt_kernels/common/kernels/register_rows.hpp"

#if defined(TRISC_MATH)

namespace dense_rows::vector {

using ckernel::p_sfpu;
using register_rows::vector::tile_stride;
using register_rows::vector::vector_rows;

// LREG0 = the sum of the four rows of LREG0, in each of them.
inline void add_rows() {
    TTI_SFPMOV(0, p_sfpu::LREG0, p_sfpu::LREG1, 0);
    TTI_SFPMOV(0, p_sfpu::LREG0, p_sfpu::LREG2, 0);
    TTI_SFPMOV(0, p_sfpu::LREG0, p_sfpu::LREG3, 0);
    register_rows::vector::add_rows();
}

// Even columns of the first rows of register 1 = the sum of the squares of register 0, odd ones = 1.
inline void sum_of_squares(register_rows::Bands bands) {
    register_rows::vector::sum_squares<1>(bands);
    add_rows();
    register_rows::vector::add_rotated<1>();
    register_rows::vector::add_rotated<2>();
    register_rows::vector::add_rotated<4>();
    ckernel::math::reset_counters(ckernel::p_setrwc::SET_D);
    TTI_SFPSTORE(p_sfpu::LREG0, 0, ADDR_MOD_3, tile_stride * vector_rows);
    TTI_SFPSTORE(p_sfpu::LCONST_1, 0, ADDR_MOD_3, (tile_stride + 1) * vector_rows);
}

// The first vector of register 1 = the sum over the rows of its first `bands` bands in the left face, of which all even
// columns are equal.
template <uint32_t bands>
inline void add_workers() {
    TTI_SFPLOAD(p_sfpu::LREG0, 0, ADDR_MOD_3, tile_stride * vector_rows);
#pragma GCC unroll 4
    for (uint32_t band = 1; band < bands; ++band) {
        TT_SFPLOAD(p_sfpu::LREG1, 0, ADDR_MOD_3, (tile_stride + 2 * band) * vector_rows);
        TTI_SFPADD(p_sfpu::LCONST_1, p_sfpu::LREG0, p_sfpu::LREG1, p_sfpu::LREG0, 0);
        TTI_SFPNOP;
    }
    add_rows();
    TTI_SFPSTORE(p_sfpu::LREG0, 0, ADDR_MOD_3, tile_stride * vector_rows);
}

constexpr uint32_t vectors_of_a_band = 4;

// Register 0 *= register 2 / sqrt(the first vector of register 1 * per_column + epsilon); both are bits of float32.
inline void normalise(register_rows::Bands bands, uint32_t per_column, uint32_t epsilon) {
    using ckernel::sfpu::Converter;
    sfpi::vFloat scale = sfpi::dst_reg[tile_stride];
    scale = scale * Converter::as_float(per_column) + Converter::as_float(epsilon);
    scale = ckernel::sfpu::_calculate_sqrt_body_<false, true, false>(scale);
#pragma GCC unroll 8
    for (uint32_t i = 0; i < bands.end * vectors_of_a_band; ++i) {
        sfpi::dst_reg[0] = sfpi::dst_reg[0] * scale * sfpi::dst_reg[2 * tile_stride];
        sfpi::dst_reg++;
    }
}

}  // namespace dense_rows::vector

#endif

namespace dense_rows {

// See vector::sum_of_squares(). bands: from the first on, of whole faces.
inline void sum_of_squares([[maybe_unused]] register_rows::Bands bands) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(vector::sum_of_squares, 0, ckernel::VectorMode::None, bands)));
}

// Register 0 = its norm, given the sums of squares of up to 4 * `worker_bands` workers in the rows of register 1 as
// sum_of_squares() leaves them, other rows being 0 there, and weights in register 2. After rsqrt_tile_init().
template <uint32_t worker_bands>
inline void normalise(
    [[maybe_unused]] register_rows::Bands bands,
    [[maybe_unused]] uint32_t per_column,
    [[maybe_unused]] uint32_t epsilon) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(
        vector::add_workers<worker_bands>, 0, ckernel::VectorMode::None)));
    MATH((_llk_math_eltwise_unary_sfpu_params_(
        vector::normalise, 0, ckernel::VectorMode::None, bands, per_column, epsilon)));
}

}  // namespace dense_rows
