// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Sums of tiles, and of the squares of users' rows, a user in a row of each tile, by the vector unit; for compute kernels with float32
// registers. A number of a row stands in the even columns of its left face, the first vector of a band in
// common/kernels/register_rows.hpp.

#pragma once

#include <cstdint>

#include "api/compute/eltwise_unary/rsqrt.h"
#include "tt_kernels/common/kernels/register_rows.hpp"

#if defined(TRISC_MATH)

namespace user_rows::vector {

using register_rows::Bands;
using register_rows::vector::band_stride;
using register_rows::vector::face_stride;
using register_rows::vector::for_each_band;
using register_rows::vector::tile_stride;

template <bool first>
inline void add_squares(Bands bands) {
    for_each_band(bands, [] {
        sfpi::vFloat total = 0.0f;
        if constexpr (!first) {
            total = sfpi::dst_reg[0];
        }
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; ++i) {
            const sfpi::vFloat part = sfpi::dst_reg[tile_stride + i / 2 * face_stride + i % 2];
            total = part * part + total;
        }
        sfpi::dst_reg[0] = total;
        sfpi::dst_reg += band_stride;
    });
}

inline void add_columns(Bands bands) {
    using ckernel::p_sfpu;
    for_each_band(bands, [] {
        TTI_SFPLOAD(p_sfpu::LREG0, 0, ADDR_MOD_3, 0);
        register_rows::vector::add_rotated<1>();
        register_rows::vector::add_rotated<2>();
        register_rows::vector::add_rotated<4>();
        TTI_SFPSTORE(p_sfpu::LREG0, 0, ADDR_MOD_3, 0);
        sfpi::dst_reg += band_stride;
    });
}

inline void add(Bands bands) {
    for_each_band(bands, [] {
        sfpi::dst_reg[0] = sfpi::dst_reg[0] + sfpi::dst_reg[tile_stride];
        sfpi::dst_reg += band_stride;
    });
}

template <uint32_t others>
inline void add_up(Bands bands) {
    for_each_band(bands, [] {
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t at = i / 2 * face_stride + i % 2;
            sfpi::vFloat sum = sfpi::dst_reg[at];
#pragma GCC unroll 3
            for (uint32_t other = 1; other <= others; ++other) {
                sum = sum + sfpi::dst_reg[other * tile_stride + at];
            }
            sfpi::dst_reg[at] = sum;
        }
        sfpi::dst_reg += band_stride;
    });
}

inline void scales(Bands bands, uint32_t per_column, uint32_t epsilon) {
    using ckernel::sfpu::Converter;
    for_each_band(bands, [=] {
        sfpi::vFloat scale = sfpi::dst_reg[0];
        scale = scale * Converter::as_float(per_column) + Converter::as_float(epsilon);
        scale = ckernel::sfpu::_calculate_sqrt_body_<false, true, false>(scale);
        sfpi::dst_reg[0] = scale;
        sfpi::dst_reg[1] = scale;
        sfpi::dst_reg[face_stride] = scale;
        sfpi::dst_reg[face_stride + 1] = scale;
        sfpi::dst_reg += band_stride;
    });
}

}  // namespace user_rows::vector

#endif

namespace user_rows {

inline void init() { ckernel::rsqrt_tile_init(); }

// Numbers of register 0 = sums of the squares of register 1's rows, column by column; added to what is there but `first`.
template <bool first>
inline void add_squares([[maybe_unused]] register_rows::Bands bands) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(
        vector::add_squares<first>, 0, ckernel::VectorMode::None, bands)));
}

// Numbers of register 0 = the sum over their columns.
inline void add_columns([[maybe_unused]] register_rows::Bands bands) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(vector::add_columns, 0, ckernel::VectorMode::None, bands)));
}

// Numbers of register 0 += those of register 1.
inline void add([[maybe_unused]] register_rows::Bands bands) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(vector::add, 0, ckernel::VectorMode::None, bands)));
}

// Register 0 += registers 1 to `others`, one after the other.
template <uint32_t others>
inline void add_up([[maybe_unused]] register_rows::Bands bands) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(vector::add_up<others>, 0, ckernel::VectorMode::None, bands)));
}

// All columns of register 0 = 1 / sqrt(number * per_column + epsilon); both are bits of float32. After init().
inline void scales(
    [[maybe_unused]] register_rows::Bands bands,
    [[maybe_unused]] uint32_t per_column,
    [[maybe_unused]] uint32_t epsilon) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(
        vector::scales, 0, ckernel::VectorMode::None, bands, per_column, epsilon)));
}

}  // namespace user_rows
