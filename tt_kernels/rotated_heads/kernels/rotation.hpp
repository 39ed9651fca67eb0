// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A rotary embedding by the vector unit, for compute kernels. A vector holds the even or the odd columns of 4 rows in a
// face (user_vectors.hpp), so the partners of a rotation, which lie side by side, are two vectors that follow each other.

#pragma once

#include <cstdint>

#include "api/compute/compute_kernel_api.h"
#include "tt_kernels/common/kernels/user_vectors.hpp"

namespace rotation {

constexpr uint32_t cos = 1, sin = 2;  // registers

}  // namespace rotation

#if defined(TRISC_MATH)

namespace rotation::vector {

template <uint32_t users>
inline void rotate() {
    user_vectors::for_each<users, 2>([] {
        constexpr uint32_t stride = user_vectors::tile_vectors;
        const sfpi::vFloat even = sfpi::dst_reg[0], odd = sfpi::dst_reg[1];
        const sfpi::vFloat c = sfpi::dst_reg[cos * stride], s = sfpi::dst_reg[sin * stride];
        user_vectors::store(0, even * c - odd * s);
        user_vectors::store(1, odd * c + even * s);
        sfpi::dst_reg += 2;
    });
}

}  // namespace rotation::vector

#endif

namespace rotation {

inline void init() { MATH((SFPU_UNARY_INIT(unused))); }

// Register 0 is rotated by the angles whose cosines and sines registers `cos` and `sin` hold, in the rows of users and
// others of their bands of 4. Angles are in even columns, odd ones are not read.
template <uint32_t users>
inline void rotate() {
    MATH((_llk_math_eltwise_unary_sfpu_params_(vector::rotate<users>, 0, ckernel::VectorMode::None)));
}

}  // namespace rotation
