// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

// Piecewise linear tables: result = slope * |x| + intercept, the pair chosen by the magnitude of x.

#pragma once

#include "sfpi_layer/functions.h"

namespace sfpi {

namespace detail {

// SFPLUT's 8-bit float: sign, 3 bits of negated exponent, 4 of mantissa; 0xff is zero. Rounded to nearest.
constexpr std::uint32_t lut8(float value) {
    if (value == 0.0f) {
        return 0xff;
    }
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) + (1u << 18);
    const std::uint32_t exponent = 127 - ((bits >> 23) & 0xff);
    return (bits >> 31) << 7 | (exponent & 7) << 4 | ((bits >> 19) & 0xf);
}

// SFPLUTFP32's 16-bit float: FP16 whose exponent 31 means zero and whose exponent 0 is a normal one.
constexpr std::uint32_t lut16(float value) {
    if (value == 0.0f) {
        return 0x7c00;
    }
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) + (1u << 12);
    const std::uint32_t exponent = ((bits >> 23) & 0xff) - 112;
    return (bits >> 31) << 15 | (exponent & 0x1f) << 10 | ((bits >> 13) & 0x3ff);
}

template <class Tag>
class table_entry {
public:
    reg r;
    sfpi_inline table_entry(raw_vector value) : r(value.r) {}
    table_entry(const table_entry&) = default;
    sfpi_inline raw_vector get() const { return {r}; }

protected:
    sfpi_inline explicit table_entry(std::uint32_t bits) : r(load_bits(bits)) {}
};

}  // namespace detail

// Slope and intercept of one segment, 8 bits each.
struct vLut8si : detail::table_entry<vLut8si> {
    using table_entry::table_entry;
    sfpi_inline vLut8si(float slope, float intercept) :
        table_entry(detail::lut8(slope) << 8 | detail::lut8(intercept)) {}
};
// Slopes of two neighbouring segments, 16 bits each, the nearer to zero in the lower half.
struct vLut16ss : detail::table_entry<vLut16ss> {
    using table_entry::table_entry;
    sfpi_inline vLut16ss(float first, float second) :
        table_entry(detail::lut16(first) | detail::lut16(second) << 16) {}
};
// Intercepts of two neighbouring segments.
struct vLut16ii : detail::table_entry<vLut16ii> {
    using table_entry::table_entry;
    sfpi_inline vLut16ii(float first, float second) :
        table_entry(detail::lut16(first) | detail::lut16(second) << 16) {}
};

// Update: the sign is the sum's. Retain: it is x's.
enum class LutSign { Update, Retain };

// Three segments: |x| < 1, < 2, and above.
sfpi_inline vFloat
lut(const vFloat& x,
    const vLut8si& s0,
    const vLut8si& s1,
    const vLut8si& s2,
    LutSign sign = LutSign::Retain) {
    detail::reg result;
    if (sign == LutSign::Retain) {
        asm volatile("sfpu lut %0 %1 %2 %3 %4 4" : "=f"(result) : "f"(x.r), "f"(s0.r), "f"(s1.r), "f"(s2.r));
    } else {
        asm volatile("sfpu lut %0 %1 %2 %3 %4 0" : "=f"(result) : "f"(x.r), "f"(s0.r), "f"(s1.r), "f"(s2.r));
    }
    return detail::wrap<vFloat>(result);
}

// Six segments: |x| < 0.5, < 1, < 1.5, < 2, < 3, and above.
sfpi_inline vFloat
lut(const vFloat& x,
    const vLut16ss& s01,
    const vLut16ii& i01,
    const vLut16ss& s23,
    const vLut16ii& i23,
    const vLut16ss& s45,
    const vLut16ii& i45,
    LutSign sign = LutSign::Retain) {
    detail::reg result;
    if (sign == LutSign::Retain) {
        asm volatile("sfpu lutfp32 %0 %1 %2 %3 %4 %5 %6 %7 6"
                     : "=f"(result)
                     : "f"(x.r), "f"(s01.r), "f"(s23.r), "f"(s45.r), "f"(i01.r), "f"(i23.r), "f"(i45.r));
    } else {
        asm volatile("sfpu lutfp32 %0 %1 %2 %3 %4 %5 %6 %7 2"
                     : "=f"(result)
                     : "f"(x.r), "f"(s01.r), "f"(s23.r), "f"(s45.r), "f"(i01.r), "f"(i23.r), "f"(i45.r));
    }
    return detail::wrap<vFloat>(result);
}

}  // namespace sfpi
