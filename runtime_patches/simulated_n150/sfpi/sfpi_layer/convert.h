// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

// Conversions of value: convert<To>(from, mode).

#pragma once

#include "sfpi_layer/conditions.h"

namespace sfpi {

// Nearest: ties to even from integers, ties away from zero to 16-bit formats and integers (the hardware's
// rules).
enum class RoundMode { Nearest, NearestStochastic };

namespace detail {

template <class To>
struct rounding_mode;
template <>
struct rounding_mode<vFloat16a> : std::integral_constant<unsigned, SFPSTOCHRND_MOD1_FP32_TO_FP16A> {};
template <>
struct rounding_mode<vFloat16b> : std::integral_constant<unsigned, SFPSTOCHRND_MOD1_FP32_TO_FP16B> {};
template <>
struct rounding_mode<vUInt8> : std::integral_constant<unsigned, SFPSTOCHRND_MOD1_FP32_TO_UINT8> {};
template <>
struct rounding_mode<vSMag8> : std::integral_constant<unsigned, SFPSTOCHRND_MOD1_FP32_TO_INT8> {};
template <>
struct rounding_mode<vUInt16> : std::integral_constant<unsigned, SFPSTOCHRND_MOD1_FP32_TO_UINT16> {};
template <>
struct rounding_mode<vSMag16> : std::integral_constant<unsigned, SFPSTOCHRND_MOD1_FP32_TO_INT16> {};

template <class To>
concept RoundingTarget = requires { rounding_mode<To>::value; };

template <class V>
struct always_false : std::false_type {};

// The sign of `sign` on the low 31 bits of `magnitude`.
sfpi_inline reg join_sign(reg magnitude, reg sign) {
    reg result = sign;
    SFPI_IN_PLACE("setsgn", result, magnitude, 0, 0);
    return result;
}

sfpi_inline vSMag to_sign_magnitude(const vInt& value) {
    reg magnitude;
    SFPI_UNARY("abs", magnitude, value.r, 0, SFPABS_MOD1_INT);
    return wrap<vSMag>(join_sign(magnitude, value.r));
}

sfpi_inline vInt to_twos_complement(const vSMag& value) {
    reg magnitude;
    SFPI_UNARY("setsgni", magnitude, value.r, 0, SFPSETSGN_MOD1_ARG_IMM);
    vInt result = wrap<vInt>(magnitude);
    v_if(wrap<vInt>(value.r) < 0) { result = 0 - result; }
    v_endif;
    return result;
}

}  // namespace detail

template <class To, class From>
sfpi_inline To convert(const From& value, RoundMode mode = RoundMode::Nearest) {
    using V = typename detail::vector_of<From>::type;
    if constexpr (detail::RoundingTarget<To>) {
        detail::reg result;
        const vFloat source = value;
        if (mode == RoundMode::Nearest) {
            SFPI_UNARY("stochrnd", result, source.r, 0, detail::rounding_mode<To>::value);
        } else {
            SFPI_UNARY("stochrnd", result, source.r, 1, detail::rounding_mode<To>::value);
        }
        return detail::wrap<To>(result);
    } else if constexpr (std::is_same_v<To, vFloat> && detail::IntegerVector<From>) {
        detail::reg source;
        if constexpr (std::is_same_v<V, vInt>) {
            source = detail::to_sign_magnitude(V(value)).r;
        } else {
            source = V(value).r;
        }
        detail::reg result;
        if (mode == RoundMode::Nearest) {
            SFPI_UNARY("cast", result, source, 0, SFPCAST_MOD1_SM32_TO_FP32_RNE);
        } else {
            SFPI_UNARY("cast", result, source, 0, SFPCAST_MOD1_SM32_TO_FP32_RNS);
        }
        return detail::wrap<vFloat>(result);
    } else if constexpr (std::is_same_v<To, vSMag> && std::is_same_v<V, vInt>) {
        return detail::to_sign_magnitude(V(value));
    } else if constexpr (std::is_same_v<To, vInt> && detail::IntegerVector<From>) {
        return detail::to_twos_complement(vSMag(V(value)));
    } else {
        static_assert(
            detail::always_false<To>::value, "Wormhole's vector unit has no conversion between these types");
    }
}

}  // namespace sfpi
