// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Comparisons and draws in whole numbers wider than 64 bits. Plain C++: tested on the host too.

#pragma once

#include <cstdint>

namespace wide {

struct Product {
    uint64_t high;
    uint64_t low;
};

inline Product multiply(uint64_t a, uint64_t b) {
    const uint32_t a_high = a >> 32, a_low = a, b_high = b >> 32, b_low = b;
    const uint64_t low = static_cast<uint64_t>(a_low) * b_low;
    const uint64_t cross = static_cast<uint64_t>(a_high) * b_low;
    const uint64_t middle = static_cast<uint64_t>(a_low) * b_high + (cross & 0xFFFFFFFF) + (low >> 32);
    return {
        static_cast<uint64_t>(a_high) * b_high + (cross >> 32) + (middle >> 32),
        (middle << 32) | (low & 0xFFFFFFFF)};
}

inline bool less(const Product& a, const Product& b) {
    return a.high != b.high ? a.high < b.high : a.low < b.low;
}

// u / 2^32 * q * p_sum, and p * q_sum, both times 2^32. p, q below 2^32; sums below 2^63.
inline Product scaled_draft(uint32_t u, uint32_t q, uint64_t p_sum) {
    return multiply(static_cast<uint64_t>(u) * q, p_sum);
}
inline Product scaled_target(uint32_t p, uint64_t q_sum) {
    return multiply(static_cast<uint64_t>(p) << 32, q_sum);
}

// floor(u / 2^32 * total), below total.
inline uint64_t share(uint32_t u, uint64_t total) {
    const Product product = multiply(u, total);
    return (product.high << 32) | (product.low >> 32);
}

// The bits of the largest float32 not above 2^31 / total; total from 1 to 2^62. In whole numbers, since the compiler's
// own division has tables that the loader of kernels refuses.
inline uint32_t reciprocal(uint64_t total) {
    uint32_t length = 0;
    for (uint64_t rest = total; rest != 0; rest >>= 1) {
        ++length;
    }
    uint64_t rest = uint64_t{1} << (length - 1);
    uint32_t quotient = rest == total;  // floor(2^(length - 1) / total), and 24 bits more
    rest -= quotient ? total : 0;
    for (uint32_t bit = 0; bit < 24; ++bit) {
        rest <<= 1;
        quotient <<= 1;
        if (rest >= total) {
            rest -= total;
            quotient |= 1;
        }
    }
    const uint32_t exponent = 127 + 31 - length + (quotient >> 24);
    return exponent << 23 | (quotient >> 24 != 0 ? 0 : quotient & 0x7FFFFF);
}

}  // namespace wide
