// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// silu(gate) * up by the vector unit on the bands of 4 rows that hold users (user_vectors.hpp), rounded once.

#pragma once

#include <cstdint>

#include "api/compute/compute_kernel_api.h"
#include "tt_kernels/common/kernels/user_vectors.hpp"

namespace gated_rows {

// Half of the bfloat16 registers hold as many tiles of gate and of up: register i is the gate of pair i, pairs + i its up.
constexpr uint32_t pairs = get_named_compile_time_arg_val("pairs");

}  // namespace gated_rows

#if defined(TRISC_MATH)

#include "ckernel_sfpu_exp.h"
#include "ckernel_sfpu_recip.h"

namespace gated_rows::vector {

template <uint32_t users>
inline void multiply() {
    user_vectors::for_each<users, 1>([] {
        const sfpi::vFloat gate = sfpi::dst_reg[0];
        const sfpi::vFloat divisor = 1.0f + ckernel::sfpu::_sfpu_exp_fp32_accurate_<>(-gate);
        const sfpi::vFloat silu = sfpi::dst_reg[0] * ckernel::sfpu::sfpu_reciprocal_iter<2>(divisor);
        user_vectors::store(0, silu * sfpi::dst_reg[pairs * user_vectors::tile_vectors]);
    });
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
