// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The vector unit on the rows of a destination tile that hold users, the first ones; for compute kernels with bfloat16
// registers. A vector holds the even or the odd columns of a band of 4 rows in a face (16 x 16), so a band is four
// vectors of a tile. Computations are in float32, and store() rounds.

#pragma once

#include <cstdint>

#if defined(TRISC_MATH)

#include "llk_math_eltwise_unary_sfpu_params.h"
#include "sfpi.h"

namespace user_vectors {

// In vectors of sfpi::dst_reg.
constexpr uint32_t tile_vectors = 32, face_vectors = 8, band_vectors = 2;
constexpr uint32_t face_rows = 16, band_rows = 4;

// Vectors that hold users of each of the two faces that begin with row `first`.
constexpr uint32_t vectors_of(uint32_t users, uint32_t first) {
    const uint32_t rows = users <= first ? 0 : users - first < face_rows ? users - first : face_rows;
    return (rows + band_rows - 1) / band_rows * band_vectors;
}

// Calls visit() for each `step` vectors that hold users, with sfpi::dst_reg[0] at the first of them; visit() leaves it at
// the next ones.
template <uint32_t users, uint32_t step, typename Visit>
sfpi_inline void for_each(Visit visit) {
    constexpr uint32_t faces = users > face_rows ? 4 : 2;
    for (uint32_t face = 0; face < faces; ++face) {
        const uint32_t vectors = face < 2 ? vectors_of(users, 0) : vectors_of(users, face_rows);
        for (uint32_t i = 0; i < vectors; i += step) {
            visit();
        }
        for (uint32_t i = vectors; i < face_vectors; ++i) {
            sfpi::dst_reg++;
        }
    }
}

sfpi_inline void store(uint32_t at, sfpi::vFloat value) {
    sfpi::dst_reg[at] = sfpi::convert<sfpi::vFloat16b>(value, sfpi::RoundMode::Nearest);
}

}  // namespace user_vectors

#endif
