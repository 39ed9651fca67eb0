// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The softmax mass of a key tile in integers, for RISC-V cores, which have no floating point:
//
//     mass = sum over rows of v exp(scale (m - M)) / l
//
// v: the sum of a row's weights in that tile, relative to the row maximum m of their chunk; M, l: the row's maximum and
// row sum over all keys. A mass is a fixed-point number with `fraction_bits`; relative to a row's sum the largest error
// is about 1 %, of which the two bytes of v and the parabola have a third each.

#pragma once

#include <cstdint>

namespace tile_mass {

constexpr uint32_t fraction_bits = 26;  // so that 32 rows fit in a word

inline uint32_t high_product(uint32_t a, uint32_t b) {
    return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
}

// The nearest bfloat16 of the bits of a float32.
inline uint16_t rounded(uint32_t bits) { return static_cast<uint16_t>((bits + 0x8000) >> 16); }

constexpr uint32_t bias = 127, bf16_mantissa_bits = 7, float_mantissa_bits = 23;

inline uint32_t bf16_exponent(uint32_t bits) { return bits >> bf16_mantissa_bits & 0xFF; }
inline uint32_t bf16_mantissa(uint32_t bits) { return bf16_exponent(bits) == 0 ? 0 : (bits & 0x7F) | 0x80; }
inline uint32_t float_mantissa(uint32_t bits) { return (bits & 0x7FFFFF) | 0x800000; }

constexpr uint32_t distance_bits = 16, far = 0xFFFFFFFF;

// log2 of the factor by which weights relative to row maximum `from` are larger than those relative to `to`, which is not
// below it, with 16 bits of fraction. Both are bfloat16. scale_log2e: the bits of the float32 scale * log2(e), positive.
inline uint32_t distance(uint32_t from, uint32_t to, uint32_t scale_log2e) {
    constexpr uint32_t spare_bits = 16;
    const uint32_t from_exponent = bf16_exponent(from), to_exponent = bf16_exponent(to);
    const uint32_t exponent = from_exponent < to_exponent ? to_exponent : from_exponent;
    const auto fixed = [&](uint32_t bits) {
        const uint32_t below = exponent - bf16_exponent(bits);
        const int32_t size = below < 32 ? bf16_mantissa(bits) << spare_bits >> below : 0;
        return (bits & 0x8000) != 0 ? -size : size;
    };
    const int32_t difference = fixed(to) - fixed(from);  // below 2^25
    if (difference <= 0) {
        return 0;
    }
    const uint32_t product =
        high_product(static_cast<uint32_t>(difference) << 7, float_mantissa(scale_log2e) << 8);
    constexpr uint32_t at_zero =
        2 * bias + bf16_mantissa_bits + spare_bits + float_mantissa_bits - 17 - distance_bits;
    const uint32_t exponents = exponent + (scale_log2e >> float_mantissa_bits);
    if (exponents <= at_zero) {
        const uint32_t down = at_zero - exponents;
        return down < 32 ? product >> down : 0;
    }
    const uint32_t up = exponents - at_zero;
    return up < 32 && product >> (32 - up) == 0 ? product << up : far;
}

// exp(scale (m - M)) / l: `mantissa` times a power of two.
struct Factor {
    uint32_t mantissa;
    uint32_t shift;  // from the product with a weight's exponent of 0 to a mass
};

// total: the bits of l, a positive float32. distance: of m and M.
inline Factor factor(uint32_t total, uint32_t distance) {
    const uint32_t quotient = 0xFFFFFFFF / (float_mantissa(total) >> 8) >> 1;  // 2^15 to 2^16
    // 2^-f = 1 - 0.67157 f + 0.17157 f^2, 0.3 % off at most.
    const uint32_t f = distance & 0xFFFF;
    const uint32_t power = 0xFFFF - (f * 44012 >> 16) + ((f * f >> 16) * 11244 >> 16);
    return {quotient * power, (total >> float_mantissa_bits) + (distance >> distance_bits) + 5};
}

// weight: v, a bfloat16 that is not negative.
inline uint32_t of(uint32_t weight, const Factor& factor) {
    const uint32_t product = high_product(bf16_mantissa(weight) << 24, factor.mantissa);
    const uint32_t shift = factor.shift - bf16_exponent(weight);
    return shift < 32 ? product >> shift : 0;
}

}  // namespace tile_mass
