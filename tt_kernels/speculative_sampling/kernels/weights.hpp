// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The vector unit's part, for the compute kernel: weights of 1024 ids at a time, float32 throughout. The order of ids
// does not matter to it, so 1024 neighbouring ids of a row are a tile: packed again they are in their order.
//
// A weight of up to 1 is split into whole numbers: coarse of 2^-15 each, and fine of 2^-31 each (of either sign). Sums
// of 32 of either are exact. They leave as the float32 number + 1.5 * 2^23, whose bits less those of 1.5 * 2^23 are the
// number as an integer.
//
// `vectors` is an even count: of a tile's 32, two hold 64 neighbouring ids, so the last tile of a row needs fewer.

#pragma once

#include <cstdint>

#include "api/compute/eltwise_unary/recip.h"

#if defined(TRISC_MATH)

#include "ckernel_sfpu_exp.h"
#include "ckernel_sfpu_recip.h"
#include "llk_math_eltwise_unary_sfpu_params.h"
#include "sfpi.h"
#include "sfpu/ckernel_sfpu_converter.h"

namespace weights::vector {

using ckernel::sfpu::Converter;

constexpr uint32_t tile = 32;  // vectors of a tile
constexpr float deepest = -86.0f;
constexpr float furthest = 40.0f;
constexpr float coarse = 32768.0f, fine = 65536.0f;
constexpr float whole = 12582912.0f;  // 1.5 * 2^23: added and subtracted, it rounds to whole numbers

sfpi_inline sfpi::vFloat rounded(const sfpi::vFloat& value) {
    const sfpi::vFloat moved = value + whole;
    return moved - whole;
}

// From behind `vectors` vectors of a tile to pair `slot` of the next one.
sfpi_inline void go_on(uint32_t vectors, uint32_t slot) {
    for (uint32_t i = vectors; i < tile + 2 * slot; i += 2) {
        sfpi::dst_reg += 2;
    }
}

template <bool first>
inline void widen_range(uint32_t vectors) {
    sfpi::vFloat most, least;
    if constexpr (first) {
        most = sfpi::dst_reg[0];
        least = sfpi::dst_reg[0];
    } else {
        most = sfpi::dst_reg[2 * tile];
        least = sfpi::dst_reg[2 * tile + 1];
    }
    for (uint32_t i = 0; i < vectors; ++i) {
        const sfpi::vFloat value = sfpi::dst_reg[0];
        most = sfpi::max(most, value);
        least = sfpi::min(least, value);
        sfpi::dst_reg++;
    }
    go_on(vectors, 0);
    sfpi::dst_reg[tile] = most;
    sfpi::dst_reg[tile + 1] = least;
}

inline void exponentiate(uint32_t vectors, uint32_t offset, uint32_t sharpness) {
    for (uint32_t i = 0; i < vectors; ++i) {
        sfpi::vFloat exponent = sfpi::dst_reg[0] + Converter::as_float(offset);
        exponent = exponent * Converter::as_float(sharpness);
        sfpi::dst_reg[0] = exponent;
        sfpi::vFloat power = ckernel::sfpu::_sfpu_exp_fp32_accurate_unsafe_(exponent);
        exponent = sfpi::dst_reg[0];
        v_if(exponent < deepest) { power = 0.0f; }
        v_endif;
        sfpi::dst_reg[0] = power;
        sfpi::dst_reg++;
    }
}

// exp of what is at most `furthest` + 1 from 0 either way.
sfpi_inline sfpi::vFloat one_and_power(const sfpi::vFloat& exponent) {
    return ckernel::sfpu::_sfpu_exp_fp32_accurate_unsafe_(exponent) + 1.0f;
}

// Vector `index` = its logits times `slope`, no further than `furthest` from 0.
sfpi_inline void scale_logits(uint32_t index, uint32_t slope) {
    sfpi::vFloat scaled = sfpi::dst_reg[index] * Converter::as_float(slope);
    v_if(scaled < -furthest) { scaled = -furthest; }
    v_endif;
    v_if(scaled > furthest) { scaled = furthest; }
    v_endif;
    sfpi::dst_reg[index] = scaled;
}

// 1 / (1 + exp(-(logit * slope + center))).
inline void sigmoid(uint32_t vectors, uint32_t center, uint32_t slope) {
    for (uint32_t i = 0; i < vectors; ++i) {
        scale_logits(0, slope);
        sfpi::vFloat exponent = -sfpi::dst_reg[0] - Converter::as_float(center);
        sfpi::dst_reg[0] = one_and_power(exponent);
        sfpi::vFloat sum = sfpi::dst_reg[0];
        sfpi::dst_reg[0] = ckernel::sfpu::sfpu_reciprocal_iter<2>(sum);
        sfpi::dst_reg++;
    }
}

// What of the target's sigmoid lies above the draft's, without cancellation: with a and b what the sigmoids are of,
// (1 - exp(b - a)) / ((1 + exp(-a)) (1 + exp(b))).
inline void sigmoid_difference(uint32_t vectors, uint32_t center, uint32_t slope) {
    for (uint32_t i = 0; i < vectors; ++i) {
        scale_logits(0, slope);
        scale_logits(tile, slope);
        sfpi::vFloat exponent = -sfpi::dst_reg[0] - Converter::as_float(center);
        sfpi::dst_reg[3 * tile] = one_and_power(exponent);
        exponent = sfpi::dst_reg[tile] + Converter::as_float(center);
        sfpi::vFloat product = one_and_power(exponent);
        product = product * sfpi::dst_reg[3 * tile];
        sfpi::dst_reg[3 * tile] = ckernel::sfpu::sfpu_reciprocal_iter<2>(product);
        sfpi::vFloat gap = sfpi::dst_reg[0] - sfpi::dst_reg[tile];
        sfpi::dst_reg[0] = gap;
        gap = -gap;
        sfpi::dst_reg[tile] = ckernel::sfpu::_sfpu_exp_fp32_accurate_unsafe_(gap);
        gap = sfpi::dst_reg[0];
        sfpi::vFloat above = 1.0f - sfpi::dst_reg[tile];
        // Near 0 by its series, to the fifth power.
        v_if(gap < 0.125f) {
            above = gap * 8.3333333e-3f - 4.1666667e-2f;
            above = above * gap + 1.6666667e-1f;
            above = above * gap - 0.5f;
            above = above * gap + 1.0f;
            above = above * gap;
        }
        v_endif;
        v_if(gap <= 0.0f) { above = 0.0f; }
        v_endif;
        sfpi::dst_reg[0] = above * sfpi::dst_reg[3 * tile];
        sfpi::dst_reg++;
    }
}

// What of the target lies above the draft, both as probabilities.
inline void subtract_draft(uint32_t vectors, uint32_t target_scale, uint32_t draft_scale) {
    for (uint32_t i = 0; i < vectors; ++i) {
        const sfpi::vFloat above = sfpi::dst_reg[0] * Converter::as_float(target_scale);
        sfpi::vFloat left = -sfpi::dst_reg[tile] * Converter::as_float(draft_scale) + above;
        v_if(left < 0.0f) { left = 0.0f; }
        v_endif;
        sfpi::dst_reg[0] = left;
        sfpi::dst_reg++;
    }
}

inline void add_up(uint32_t vectors, uint32_t slot) {
    sfpi::vFloat coarse_sum = 0.0f, fine_sum = 0.0f;
    for (uint32_t i = 0; i < vectors; ++i) {
        const sfpi::vFloat scaled = sfpi::dst_reg[0] * coarse;
        const sfpi::vFloat part = rounded(scaled);
        coarse_sum = coarse_sum + part;
        fine_sum = fine_sum + rounded((scaled - part) * fine);
        sfpi::dst_reg++;
    }
    go_on(vectors, slot);
    sfpi::dst_reg[tile] = coarse_sum + whole;
    sfpi::dst_reg[tile + 1] = fine_sum + whole;
}

inline void split(uint32_t vectors) {
    for (uint32_t i = 0; i < vectors; ++i) {
        const sfpi::vFloat scaled = sfpi::dst_reg[0] * coarse;
        const sfpi::vFloat moved = scaled + whole;
        sfpi::dst_reg[2 * tile] = moved;
        sfpi::dst_reg[3 * tile] = (scaled - (moved - whole)) * fine + whole;
        sfpi::dst_reg++;
    }
}

}  // namespace weights::vector

#endif

namespace weights {

// Destination tiles.
constexpr uint32_t target = 0, draft = 1, result = 2, fine_result = 3;

inline void init() { ckernel::recip_tile_init(); }

// Result pair = the largest and least of each lane of the target tile, and of those before unless it is the first.
inline void widen_range([[maybe_unused]] bool first, [[maybe_unused]] uint32_t vectors) {
    MATH(
        if (first) {
            _llk_math_eltwise_unary_sfpu_params_(
                vector::widen_range<true>, target, ckernel::VectorMode::None, vectors);
        } else {
            _llk_math_eltwise_unary_sfpu_params_(
                vector::widen_range<false>, target, ckernel::VectorMode::None, vectors);
        })
}

// Tile = exp((tile + offset) * sharpness), 0 for exponents below vector::deepest.
inline void exponentiate(
    [[maybe_unused]] uint32_t tile,
    [[maybe_unused]] uint32_t vectors,
    [[maybe_unused]] uint32_t offset,
    [[maybe_unused]] uint32_t sharpness) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(
        vector::exponentiate, tile, ckernel::VectorMode::None, vectors, offset, sharpness)));
}

// Tile = sigmoids of its logits.
inline void sigmoid(
    [[maybe_unused]] uint32_t tile,
    [[maybe_unused]] uint32_t vectors,
    [[maybe_unused]] uint32_t center,
    [[maybe_unused]] uint32_t slope) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(
        vector::sigmoid, tile, ckernel::VectorMode::None, vectors, center, slope)));
}

// Target tile = max(0, sigmoid of the target - sigmoid of the draft). Overwrites the fine result.
inline void sigmoid_difference(
    [[maybe_unused]] uint32_t vectors, [[maybe_unused]] uint32_t center, [[maybe_unused]] uint32_t slope) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(
        vector::sigmoid_difference, target, ckernel::VectorMode::None, vectors, center, slope)));
}

// Target tile = max(0, target * target_scale - draft * draft_scale).
inline void subtract_draft(
    [[maybe_unused]] uint32_t vectors,
    [[maybe_unused]] uint32_t target_scale,
    [[maybe_unused]] uint32_t draft_scale) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(
        vector::subtract_draft, target, ckernel::VectorMode::None, vectors, target_scale, draft_scale)));
}

// Result pair `slot` = the sums of coarse and of fine parts of each lane of the target tile.
inline void add_up([[maybe_unused]] uint32_t vectors, [[maybe_unused]] uint32_t slot) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(
        vector::add_up, target, ckernel::VectorMode::None, vectors, slot)));
}

// Result and fine result = the parts of each weight of the target tile.
inline void split([[maybe_unused]] uint32_t vectors) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(vector::split, target, ckernel::VectorMode::None, vectors)));
}

}  // namespace weights
