// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The sum of float32 numbers that are not negative, by their bits: a tenth of the code of the compiler's addition, where
// the kernels of a core have little room.

#pragma once

#include <cstdint>

namespace positive_sum {

constexpr uint32_t mantissa_bits = 23, hidden_bit = 1u << mantissa_bits, infinite_exponent = 255;
constexpr uint32_t guard_bits = 6;

// Rounds to nearest, but for what lies below the guard bits of the larger number. Subnormal numbers count as 0; infinity
// and NaN stay what they are, and what is too large becomes one of them.
inline uint32_t add(uint32_t a, uint32_t b) {
    const uint32_t larger = a < b ? b : a, smaller = a < b ? a : b;
    uint32_t exponent = larger >> mantissa_bits;
    const uint32_t below = exponent - (smaller >> mantissa_bits);
    if (exponent == infinite_exponent || smaller < hidden_bit || below > mantissa_bits + 1) {
        return larger;
    }
    const auto mantissa = [](uint32_t bits) {
        return ((bits & (hidden_bit - 1)) | hidden_bit) << guard_bits;
    };
    uint32_t sum = mantissa(larger) + (mantissa(smaller) >> below);
    if (sum >> (mantissa_bits + guard_bits + 1) != 0) {
        sum >>= 1;
        ++exponent;
    }
    // A carry out of the mantissa raises the exponent.
    const uint32_t rounded = (sum + (1u << (guard_bits - 1))) >> guard_bits;
    return (exponent << mantissa_bits) + rounded - hidden_bit;
}

}  // namespace positive_sum
