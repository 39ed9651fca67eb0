// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// silu(gate) * up by the vector unit on the bands of 4 rows that hold users (user_vectors.hpp), rounded once: of float32
// the largest error is 0.031 % before that, a seventh of half a place of bfloat16.
//
//     e = exp(-|gate|);   sigmoid = (gate < 0 ? e : 1) / (1 + e)
//
// e is register_rows.hpp's exponential with a better 2^f: a cubic without its square, 0.0095 % off. 1 / (1 + e), of e from 0
// to 1, is y (1 + r + r^2) with y a line in e and r = 1 - (1 + e) y, at most 1 / 17: off by r^3.

#pragma once

#include <cstdint>

#include "api/compute/compute_kernel_api.h"
#include "tt_kernels/common/kernels/register_rows.hpp"
#include "tt_kernels/common/kernels/user_vectors.hpp"

namespace gated_rows {

// Half of the bfloat16 registers hold as many tiles of gate and of up: register i is the gate of pair i, pairs + i its up.
constexpr uint32_t pairs = get_named_compile_time_arg_val("pairs");

}  // namespace gated_rows

#if defined(TRISC_MATH)

namespace gated_rows::vector {

using ckernel::p_sfpu;

constexpr uint32_t one = 0x3F800000;
// 2^f as cubic x^3 + linear x + constant in x = 1 + f: of least relative error for f from 0 to 1, from 1 on and below 2.
constexpr uint32_t cubic = 0x3D9C405A, linear = 0x3EEE7023, constant = 0x3EEA8610;
// y = start + slope e: 16/17, as float16 has it, and -8/17.
constexpr uint32_t start = 0x3B88, slope = 0xBEF0F0F1;
constexpr uint32_t slots = 31;  // of the replay buffer

// The constants, and the replay buffer = what is done to a vector. By hand, to fill the instructions that must not use the
// result of the multiplication or addition before them.
inline void prepare() {
    using namespace register_rows::vector::exponential;
    using register_rows::vector::on_by_a_vector, register_rows::vector::vector_rows;
    register_rows::vector::prepare_moves();
    prepare_range(one);
    load<p_sfpu::LREG4>(cubic);
    load<p_sfpu::LREG5>(linear);
    load<p_sfpu::LREG6>(constant);
    load<p_sfpu::LREG7>(slope);
    lltt::record(0, slots);
    TTI_SFPLOAD(p_sfpu::LREG1, 0, ADDR_MOD_3, 0);
    TTI_SFPSETSGN(1, p_sfpu::LREG1, p_sfpu::LREG1, by_immediate);
    TTI_SFPMAD(p_sfpu::LREG1, p_sfpu::LREG12, p_sfpu::LREG13, p_sfpu::LREG1, 0);
    TTI_SFPLOAD(p_sfpu::LREG0, 0, ADDR_MOD_3, 0);
    TTI_SFPSWAP(0, p_sfpu::LREG14, p_sfpu::LREG1, highest_to_first);
    TTI_SFPNOP;
    TTI_SFPSHFT(shift, p_sfpu::LREG1, p_sfpu::LREG1, by_immediate);
    TTI_SFPSETEXP(127, p_sfpu::LREG1, p_sfpu::LREG2, by_immediate);
    TTI_SFPMUL(p_sfpu::LREG2, p_sfpu::LREG2, p_sfpu::LCONST_0, p_sfpu::LREG3, 0);
    TTI_SFPNOP;
    TTI_SFPMAD(p_sfpu::LREG3, p_sfpu::LREG4, p_sfpu::LREG5, p_sfpu::LREG3, 0);
    TTI_SFPNOP;
    TTI_SFPMAD(p_sfpu::LREG3, p_sfpu::LREG2, p_sfpu::LREG6, p_sfpu::LREG3, 0);
    TTI_SFPLOADI(p_sfpu::LREG2, sfpi::SFPLOADI_MOD0_FLOATA, start);
    TTI_SFPSETEXP(0, p_sfpu::LREG3, p_sfpu::LREG1, exponent_of_result);         // e
    TTI_SFPMAD(p_sfpu::LREG1, p_sfpu::LREG7, p_sfpu::LREG2, p_sfpu::LREG2, 0);  // y
    TTI_SFPMAD(p_sfpu::LREG1, p_sfpu::LCONST_neg1, p_sfpu::LCONST_neg1, p_sfpu::LREG3, 0);
    TTI_SFPSETCC(0, p_sfpu::LREG0, 0, sfpi::SFPSETCC_MOD1_LREG_GTE0);
    TTI_SFPLOADI(p_sfpu::LREG1, sfpi::SFPLOADI_MOD0_FLOATB, one >> 16);
    TTI_SFPENCC(0, 0, 0, 0);
    TTI_SFPMAD(p_sfpu::LREG3, p_sfpu::LREG2, p_sfpu::LCONST_1, p_sfpu::LREG3, 0);  // r
    TTI_SFPMUL(p_sfpu::LREG1, p_sfpu::LREG0, p_sfpu::LCONST_0, p_sfpu::LREG1, 0);
    TTI_SFPMAD(p_sfpu::LREG3, p_sfpu::LREG3, p_sfpu::LREG3, p_sfpu::LREG3, 0);
    TTI_SFPLOAD(p_sfpu::LREG0, 0, ADDR_MOD_3, pairs * user_vectors::tile_vectors * vector_rows);
    TTI_SFPMAD(p_sfpu::LREG2, p_sfpu::LREG3, p_sfpu::LREG2, p_sfpu::LREG2, 0);
    TTI_SFPMUL(p_sfpu::LREG1, p_sfpu::LREG0, p_sfpu::LCONST_0, p_sfpu::LREG1, 0);
    TTI_SFPNOP;
    TTI_SFPMUL(p_sfpu::LREG1, p_sfpu::LREG2, p_sfpu::LCONST_0, p_sfpu::LREG1, 0);
    TTI_SFPNOP;
    TTI_SFP_STOCH_RND(
        sfpi::SFPSTOCHRND_RND_EVEN, 0, p_sfpu::LREG1, p_sfpu::LREG1, p_sfpu::LREG1,
        sfpi::SFPSTOCHRND_MOD1_FP32_TO_FP16B);
    TTI_SFPSTORE(p_sfpu::LREG1, 0, on_by_a_vector, 0);
}

template <uint32_t users>
inline void multiply() {
    user_vectors::for_each<users, 1>([] { lltt::replay(0, slots); });
}

}  // namespace gated_rows::vector

#endif

namespace gated_rows {

inline void init() {
    MATH((_llk_math_eltwise_unary_sfpu_init_<SfpuType::unused>()));
    MATH((vector::prepare()));
}

// Register `pair` = its product with register pairs + `pair` in the rows of users, and others of their bands.
template <uint32_t users>
inline void multiply([[maybe_unused]] uint32_t pair) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(vector::multiply<users>, pair, ckernel::VectorMode::None)));
}

}  // namespace gated_rows
