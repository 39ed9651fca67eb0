// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

// Field access, absolute values, minimum and maximum, classification.

#pragma once

#include "sfpi_layer/convert.h"

namespace sfpi {

enum class ExponentMode { Unbiased, Biased };
enum class MantissaMode { Fraction, ImplicitOne };
enum class ShiftMode { Logical, Arithmetic };

// Declares to the SFPI compiler that a function needs many registers; the allocator here needs no hint.
struct lreg_pressure {
    sfpi_inline lreg_pressure() {}
    sfpi_inline ~lreg_pressure() {}
};

sfpi_inline vFloat abs(const vFloat& value) {
    detail::reg result;
    SFPI_UNARY("abs", result, value.r, 0, SFPABS_MOD1_FLOAT);
    return detail::wrap<vFloat>(result);
}
// |-2^31| stays -2^31.
sfpi_inline vMag abs(const vInt& value) {
    detail::reg result;
    SFPI_UNARY("abs", result, value.r, 0, SFPABS_MOD1_INT);
    return detail::wrap<vMag>(result);
}
sfpi_inline vMag abs(const vSMag& value) {
    detail::reg result;
    SFPI_UNARY("setsgni", result, value.r, 0, SFPSETSGN_MOD1_ARG_IMM);
    return detail::wrap<vMag>(result);
}

// Exponent field, less 127 unless Biased.
sfpi_inline vInt exexp(const vFloat& value, ExponentMode mode = ExponentMode::Unbiased) {
    detail::reg result;
    if (mode == ExponentMode::Biased) {
        SFPI_UNARY("exexp", result, value.r, 0, SFPEXEXP_MOD1_NODEBIAS);
    } else {
        SFPI_UNARY("exexp", result, value.r, 0, SFPEXEXP_MOD1_DEBIAS);
    }
    return detail::wrap<vInt>(result);
}

// Mantissa field, with the hidden bit if ImplicitOne.
sfpi_inline vMag exman(const vFloat& value, MantissaMode mode = MantissaMode::Fraction) {
    detail::reg result;
    if (mode == MantissaMode::ImplicitOne) {
        SFPI_UNARY("exman", result, value.r, 0, SFPEXMAN_MOD1_PAD8);
    } else {
        SFPI_UNARY("exman", result, value.r, 0, SFPEXMAN_MOD1_PAD9);
    }
    return detail::wrap<vMag>(result);
}

// `value` with the exponent field replaced by the low eight bits of `exponent`.
template <class E>
    requires std::integral<E> || detail::IntegerVector<E>
sfpi_inline vFloat setexp(const vFloat& value, const E& exponent) {
    if constexpr (std::integral<E>) {
        detail::reg result;
        if (__builtin_constant_p(exponent)) {
            SFPI_UNARY("setexpi", result, value.r, (exponent & 0xff), SFPSETEXP_MOD1_ARG_IMM);
        } else {
            SFPI_UNARY_RUNTIME(
                "setexpi", result, value.r, (std::uint32_t(exponent) & 0xff) << 12, SFPSETEXP_MOD1_ARG_IMM);
        }
        return detail::wrap<vFloat>(result);
    } else {
        detail::reg result = vInt(exponent).r;
        SFPI_IN_PLACE("setexp", result, value.r, 0, 0);
        return detail::wrap<vFloat>(result);
    }
}

// `value` with the mantissa field replaced by the low 23 bits of `mantissa`. The immediate form holds the
// upper 12.
template <class M>
    requires std::integral<M> || detail::IntegerVector<M>
sfpi_inline vFloat setman(const vFloat& value, const M& mantissa) {
    if constexpr (std::integral<M>) {
        if (__builtin_constant_p(mantissa) && (mantissa & 0x7ff) == 0) {
            detail::reg result;
            SFPI_UNARY("setmani", result, value.r, ((mantissa >> 11) & 0xfff), SFPSETMAN_MOD1_ARG_IMM);
            return detail::wrap<vFloat>(result);
        }
        return setman(value, vInt(mantissa));
    } else {
        detail::reg result = vInt(mantissa).r;
        SFPI_IN_PLACE("setman", result, value.r, 0, 0);
        return detail::wrap<vFloat>(result);
    }
}

// Sign and exponent of the first, mantissa of the second.
sfpi_inline vFloat copyman(const vFloat& value, const vFloat& mantissa) {
    detail::reg result = mantissa.r;
    SFPI_IN_PLACE("setman", result, value.r, 0, 0);
    return detail::wrap<vFloat>(result);
}

// Magnitude of the first, sign of the second.
sfpi_inline vFloat copysgn(const vFloat& magnitude, const vFloat& sign) {
    return detail::wrap<vFloat>(detail::join_sign(magnitude.r, sign.r));
}
template <integer_kind K>
sfpi_inline vFloat copysgn(const vFloat& magnitude, const integer<K>& sign) {
    return detail::wrap<vFloat>(detail::join_sign(magnitude.r, sign.r));
}

namespace detail {

template <class V, class S>
sfpi_inline V set_sign(const V& value, const S& sign) {
    if constexpr (std::integral<S>) {
        reg result;
        if (sign) {
            SFPI_UNARY("setsgni", result, value.r, 1, SFPSETSGN_MOD1_ARG_IMM);
        } else {
            SFPI_UNARY("setsgni", result, value.r, 0, SFPSETSGN_MOD1_ARG_IMM);
        }
        return wrap<V>(result);
    } else {
        return wrap<V>(join_sign(value.r, sign.r));
    }
}

}  // namespace detail

// The sign bit set to a constant, or copied from the top bit of a vector.
template <class S>
sfpi_inline vFloat setsgn(const vFloat& value, const S& sign) {
    return detail::set_sign(value, sign);
}
template <integer_kind K, class S>
sfpi_inline integer<K> setsgn(const integer<K>& value, const S& sign) {
    return detail::set_sign(value, sign);
}
// The sign bit set from the lowest bit of a vector: negative where it is odd.
template <integer_kind K>
sfpi_inline vFloat setsgn2(const vFloat& value, const integer<K>& parity) {
    return copysgn(value, as<vUInt>(parity) << 31);
}

// Adds to the exponent field, modulo 256; infinities and NaN stay. The immediate has 12 bits, sign-extended.
sfpi_inline vFloat addexp(const vFloat& value, int delta) {
    detail::reg result;
    if (__builtin_constant_p(delta)) {
        SFPI_UNARY("divp2", result, value.r, (delta & 0xfff), SFPDIVP2_MOD1_ADD);
    } else {
        SFPI_UNARY_RUNTIME("divp2", result, value.r, (std::uint32_t(delta) & 0xfff) << 12, SFPDIVP2_MOD1_ADD);
    }
    return detail::wrap<vFloat>(result);
}

// Left by a positive amount, right by a negative one; vacated bits are zero.
template <detail::IntegerVector V, class A>
    requires std::integral<A> || detail::IntegerVector<A>
sfpi_inline V shft(const V& value, const A& amount, ShiftMode mode = ShiftMode::Logical) {
    if (mode == ShiftMode::Arithmetic) {
        asm volatile(".error \"Wormhole's vector unit has no arithmetic shift\"");
    }
    if constexpr (std::integral<A>) {
        return detail::wrap<V>(detail::shift_immediate(value.r, std::int32_t(amount)));
    } else {
        return detail::wrap<V>(detail::shift_register(value.r, vInt(amount).r));
    }
}

// SFPLZ: number of leading zeros, 32 for zero.
template <integer_kind K>
sfpi_inline vInt lz(const integer<K>& value) {
    detail::reg result;
    SFPI_UNARY("lz", result, value.r, 0, 0);
    return detail::wrap<vInt>(result);
}

namespace detail {

// SFPSWAP orders by sign and magnitude: -NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN.
template <class V>
struct ordered_pair {
    V min, max;
};
sfpi_inline void order(reg& low, reg& high) { asm volatile("sfpu swap %0 %1 1" : "+f"(low), "+f"(high)); }
template <class V>
sfpi_inline ordered_pair<V> ordered(const V& a, const V& b) {
    reg low = a.r, high = b.r;
    order(low, high);
    return {wrap<V>(low), wrap<V>(high)};
}

}  // namespace detail

sfpi_inline detail::ordered_pair<vFloat> min_max(const vFloat& a, const vFloat& b) {
    return detail::ordered(a, b);
}
sfpi_inline vFloat min(const vFloat& a, const vFloat& b) { return detail::ordered(a, b).min; }
sfpi_inline vFloat max(const vFloat& a, const vFloat& b) { return detail::ordered(a, b).max; }
sfpi_inline vFloat clamp(const vFloat& value, const vFloat& low, const vFloat& high) {
    return min(max(value, low), high);
}
sfpi_inline vFloat symmetric_clamp(const vFloat& value, const vFloat& bound) {
    return clamp(value, -bound, bound);
}

sfpi_inline vSMag min(const vSMag& a, const vSMag& b) { return detail::ordered(a, b).min; }
sfpi_inline vSMag max(const vSMag& a, const vSMag& b) { return detail::ordered(a, b).max; }
// Two's complement orders as sign and magnitude does except between two negatives, whose order is reversed.
sfpi_inline vInt max(const vInt& a, const vInt& b) {
    vInt result = a;
    v_if(a < b) { result = b; }
    v_endif;
    return result;
}
sfpi_inline vInt min(const vInt& a, const vInt& b) {
    vInt result = b;
    v_if(a < b) { result = a; }
    v_endif;
    return result;
}

namespace detail {

constexpr std::int32_t infinity_bits = 0x7f800000;
sfpi_inline vInt magnitude_bits(const vFloat& value) { return as<vInt>(setsgn(value, 0)); }

}  // namespace detail

sfpi_inline detail::comparison is_inf(const vFloat& value) {
    return detail::magnitude_bits(value) == detail::infinity_bits;
}
sfpi_inline detail::comparison is_nan(const vFloat& value) {
    return detail::magnitude_bits(value) > detail::infinity_bits;
}
sfpi_inline detail::comparison is_finite(const vFloat& value) {
    return detail::magnitude_bits(value) < detail::infinity_bits;
}
sfpi_inline detail::comparison is_neg(const vFloat& value) { return {value.r, SFPSETCC_MOD1_LREG_LT0}; }
sfpi_inline detail::comparison is_pos(const vFloat& value) { return {value.r, SFPSETCC_MOD1_LREG_GTE0}; }

// Every lane takes its left neighbour's value, in groups of eight, the first the last's.
template <class V>
sfpi_inline V subvec_shflror1(const V& value) {
    detail::reg result;
    SFPI_UNARY("shft2", result, value.r, 0, SFPSHFT2_MOD1_SUBVEC_SHFLROR1);
    return detail::wrap<V>(result);
}

template <class V>
sfpi_inline vFloat approx_recip(const V&) {
    static_assert(
        detail::always_false<V>::value, "SFPARECIP does not exist on Wormhole: use a reciprocal iteration");
    return vFloat(0.0f);
}

}  // namespace sfpi
