// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

// Integer arithmetic, bits and shifts. An instruction that writes its own operand works on a copy.

#pragma once

#include "sfpi_layer/types.h"

namespace sfpi {

namespace detail {

template <class A, class B>
concept IntegerOperands = (IntegerVector<A> && IntegerVector<B>) || (IntegerVector<A> && std::integral<B>) ||
                          (std::integral<A> && IntegerVector<B>);

// The type of a mixed operation: two's complement wins, then unsigned, then the left one.
template <class A, class B>
sfpi_inline constexpr auto common_type() {
    using L = typename vector_of<std::remove_cvref_t<A>>::type;
    using R = typename vector_of<std::remove_cvref_t<B>>::type;
    if constexpr (std::integral<L>) {
        return std::type_identity<R>{};
    } else if constexpr (std::integral<R>) {
        return std::type_identity<L>{};
    } else if constexpr (std::is_same_v<L, vInt> || std::is_same_v<R, vInt>) {
        return std::type_identity<vInt>{};
    } else if constexpr (std::is_same_v<L, vUInt> || std::is_same_v<R, vUInt>) {
        return std::type_identity<vUInt>{};
    } else {
        return std::type_identity<L>{};
    }
}
template <class A, class B>
using common = typename decltype(common_type<A, B>())::type;

sfpi_inline bool fits_12_bits(std::int32_t value) {
    return __builtin_constant_p(value) && value >= -2048 && value <= 2047;
}

sfpi_inline reg add_registers(reg a, reg b) {
    reg result = b;
    SFPI_IN_PLACE("iadd", result, a, 0, SFPIADD_MOD1_CC_NONE);
    return result;
}
sfpi_inline reg subtract_registers(reg a, reg b) {
    reg result = b;
    SFPI_IN_PLACE("iadd", result, a, 0, (SFPIADD_MOD1_ARG_2SCOMP_LREG_DST | SFPIADD_MOD1_CC_NONE));
    return result;
}
sfpi_inline reg add_immediate(reg a, std::int32_t value) {
    reg result;
    if (fits_12_bits(value)) {
        SFPI_UNARY("iaddi", result, a, value & 0xfff, (SFPIADD_MOD1_ARG_IMM | SFPIADD_MOD1_CC_NONE));
    } else {
        result = add_registers(a, load_bits(std::uint32_t(value)));
    }
    return result;
}

// value - a as ~a + (value + 1): no register for the constant.
sfpi_inline reg subtract_from_immediate(std::int32_t value, reg a) {
    if (fits_12_bits(value + 1)) {
        reg complement;
        SFPI_UNARY("not", complement, a, 0, 0);
        return add_immediate(complement, value + 1);
    }
    return subtract_registers(load_bits(std::uint32_t(value)), a);
}

sfpi_inline reg shift_immediate(reg value, std::int32_t amount) {
    reg result = value;
    if (__builtin_constant_p(amount)) {
        SFPI_IN_PLACE("shfti", result, result, (amount & 0xfff), SFPSHFT_MOD1_ARG_IMM);
    } else {
        SFPI_IN_PLACE_RUNTIME(
            "shfti", result, result, (std::uint32_t(amount) & 0xfff) << 12, SFPSHFT_MOD1_ARG_IMM);
    }
    return result;
}
sfpi_inline reg shift_register(reg value, reg amount) {
    reg result = value;
    SFPI_IN_PLACE("shft", result, amount, 0, 0);
    return result;
}

}  // namespace detail

template <class A, class B>
    requires detail::IntegerOperands<A, B>
sfpi_inline auto operator+(const A& a, const B& b) {
    using V = detail::common<A, B>;
    if constexpr (std::integral<B>) {
        return detail::wrap<V>(detail::add_immediate(V(a).r, std::int32_t(b)));
    } else if constexpr (std::integral<A>) {
        return detail::wrap<V>(detail::add_immediate(V(b).r, std::int32_t(a)));
    } else {
        return detail::wrap<V>(detail::add_registers(V(a).r, V(b).r));
    }
}

template <class A, class B>
    requires detail::IntegerOperands<A, B>
sfpi_inline auto operator-(const A& a, const B& b) {
    using V = detail::common<A, B>;
    if constexpr (std::integral<B>) {
        return detail::wrap<V>(detail::add_immediate(V(a).r, -std::int32_t(b)));
    } else if constexpr (std::integral<A>) {
        return detail::wrap<V>(detail::subtract_from_immediate(std::int32_t(a), V(b).r));
    } else {
        return detail::wrap<V>(detail::subtract_registers(V(a).r, V(b).r));
    }
}

template <detail::IntegerVector A>
sfpi_inline auto operator-(const A& a) {
    return 0 - a;
}

#define SFPI_BITWISE(symbol, name)                             \
    template <class A, class B>                                \
        requires detail::IntegerOperands<A, B>                 \
    sfpi_inline auto operator symbol(const A& a, const B& b) { \
        using V = detail::common<A, B>;                        \
        detail::reg result = V(a).r;                           \
        SFPI_IN_PLACE(name, result, V(b).r, 0, 0);             \
        return detail::wrap<V>(result);                        \
    }
SFPI_BITWISE(&, "and")
SFPI_BITWISE(|, "or")
SFPI_BITWISE(^, "xor")
#undef SFPI_BITWISE

template <detail::IntegerVector A>
sfpi_inline auto operator~(const A& a) {
    using V = typename detail::vector_of<A>::type;
    detail::reg result;
    SFPI_UNARY("not", result, V(a).r, 0, 0);
    return detail::wrap<V>(result);
}

template <detail::IntegerVector A, class B>
    requires std::integral<B> || detail::IntegerVector<B>
sfpi_inline auto operator<<(const A& a, const B& amount) {
    using V = typename detail::vector_of<A>::type;
    if constexpr (std::integral<B>) {
        return detail::wrap<V>(detail::shift_immediate(V(a).r, std::int32_t(amount)));
    } else {
        return detail::wrap<V>(detail::shift_register(V(a).r, vInt(amount).r));
    }
}

// The shifter knows no sign: right shifts exist for unsigned values and magnitudes.
template <detail::IntegerVector A, class B>
    requires std::integral<B> || detail::IntegerVector<B>
sfpi_inline auto operator>>(const A& a, const B& amount) {
    using V = typename detail::vector_of<A>::type;
    static_assert(
        !std::is_same_v<V, vInt>,
        "Wormhole has no arithmetic right shift: shift as<vUInt>(value), or set the sign bits yourself");
    if constexpr (std::integral<B>) {
        return detail::wrap<V>(detail::shift_immediate(V(a).r, -std::int32_t(amount)));
    } else {
        return detail::wrap<V>(detail::shift_register(V(a).r, (0 - vInt(amount)).r));
    }
}

#define SFPI_COMPOUND(symbol)                                                  \
    template <integer_kind K, class B>                                         \
    sfpi_inline integer<K>& operator symbol## = (integer<K> & a, const B& b) { \
        return a = integer<K>(a symbol b);                                     \
    }
SFPI_COMPOUND(+)
SFPI_COMPOUND(-)
SFPI_COMPOUND(&)
SFPI_COMPOUND(|)
SFPI_COMPOUND(^)
SFPI_COMPOUND(<<)
SFPI_COMPOUND(>>)
#undef SFPI_COMPOUND

}  // namespace sfpi
