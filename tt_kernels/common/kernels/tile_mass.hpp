// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The softmax mass of a key tile in integers, for RISC-V cores, which have no floating point:
//
//     mass = sum over rows of v exp(scale (m - M)) / l
//
// v: the sum of a row's weights in that tile, relative to the row maximum m of their chunk; M, l: the row's maximum and
// row sum over all keys. A mass is a fixed-point number with `fraction_bits`. Its largest error, 1 % and 2^-24, is that
// of the weights' exponentials and of the parabola below, which stands for two powers.

#pragma once

#include <cstdint>

namespace tile_mass {

constexpr uint32_t fraction_bits = 24;

inline uint32_t high_product(uint32_t a, uint32_t b) {
    return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
}

constexpr uint32_t bias = 127, bf16_mantissa_bits = 7, float_mantissa_bits = 23;

inline uint32_t bf16_exponent(uint32_t bits) { return bits >> bf16_mantissa_bits & 0xFF; }
inline uint32_t bf16_mantissa(uint32_t bits) { return bf16_exponent(bits) == 0 ? 0 : (bits & 0x7F) | 0x80; }
inline uint32_t float_mantissa(uint32_t bits) { return (bits & 0x7FFFFF) | 0x800000; }

constexpr uint32_t distance_bits = 16, far = 0xFFFFFFFF;

// log2 of the factor by which weights relative to row maximum `from` are larger than those relative to `to`, which is not
// below it, with 16 bits of fraction. Both are bfloat16. scale_log2e: the bits of the float32 scale * log2(e), positive.
inline uint32_t distance(uint32_t from, uint32_t to, uint32_t scale_log2e) {
    if (from == to) {
        return 0;
    }
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

// 2^-f with 16 bits of fraction, for the fraction f of a distance: 1 - 0.67157 f + 0.17157 f^2, 0.3 % off at most.
inline uint32_t power(uint32_t distance) {
    const uint32_t f = distance & 0xFFFF;
    return 0xFFFF - (f * 44012 >> 16) + ((f * f >> 16) * 11244 >> 16);
}

// 2^-distance with 32 bits of fraction; `whole` for 1.
constexpr uint32_t whole = 0xFFFFFFFF;

inline uint32_t decay(uint32_t distance) {
    const uint32_t down = distance >> distance_bits;
    return distance == 0 ? whole : down < 32 ? power(distance) << 16 >> down : 0;
}

// A distance in octaves, rounded up.
inline uint32_t octaves(uint32_t distance) {
    return (distance >> distance_bits) + ((distance & 0xFFFF) != 0);
}

// 2^(octaves - distance) / l with 29 bits of fraction, below 8. total: the bits of l, a positive float32.
constexpr uint32_t factor_bits = 29;

inline uint32_t factor(uint32_t total, uint32_t distance, uint32_t octaves) {
    const uint32_t inverse = 0xFFFFFFFF / (float_mantissa(total) >> 8) >> 1;  // 2^15 to 2^16
    const uint32_t down = (total >> float_mantissa_bits) + (distance >> distance_bits) - octaves;
    constexpr uint32_t at_zero = bias + factor_bits - 32;
    return down < at_zero        ? 0xFFFFFFFF
           : down - at_zero < 32 ? inverse * power(distance) >> (down - at_zero)
                                 : 0;
}

// v, the bits of a float32 that is not negative, with 27 bits of fraction, below 32.
constexpr uint32_t weight_bits = fraction_bits + 32 - factor_bits;

inline uint32_t fixed(uint32_t weight) {
    constexpr uint32_t at_zero = bias + float_mantissa_bits - weight_bits;
    const uint32_t exponent = weight >> float_mantissa_bits;
    if (exponent >= at_zero) {
        return exponent - at_zero <= 8 ? float_mantissa(weight) << (exponent - at_zero) : 0xFFFFFFFF;
    }
    return at_zero - exponent < 32 ? float_mantissa(weight) >> (at_zero - exponent) : 0;
}

// A row's part of a mass.
inline uint32_t product(uint32_t weight, uint32_t factor) { return high_product(weight, factor); }

}  // namespace tile_mass
