// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

// Vector types, constant registers and scalar constants.
//
// Copy construction copies; assignment writes active lanes only, as every write inside v_if must.

#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "sfpi_layer/registers.h"

namespace sfpi {

// What get() hands out: the bare register value.
struct raw_vector {
    detail::reg r;
};

// Scalars that a 16-bit immediate holds. Built from a float (truncated to the format, which keeps exactly
// what kernels write there) or from raw bits.
class sFloat16b {
    std::uint32_t bits_;

public:
    constexpr sFloat16b(float value) : bits_(std::bit_cast<std::uint32_t>(value) & 0xffff0000u) {}
    constexpr sFloat16b(std::integral auto raw) : bits_(std::uint32_t(raw) << 16) {}
    constexpr std::uint32_t bits() const { return bits_; }
};

// FP16 with a widened exponent, as SFPLOADI reads it: no denormals, infinities or NaN.
class sFloat16a {
    std::uint32_t bits_;

public:
    constexpr sFloat16a(float value) : bits_(std::bit_cast<std::uint32_t>(value) & 0xffffe000u) {}
    constexpr sFloat16a(std::integral auto raw) :
        bits_((std::uint32_t(raw) & 0x8000) << 16 | ((std::uint32_t(raw) & 0x7fff) << 13) + (112u << 23)) {}
    constexpr std::uint32_t bits() const { return bits_; }
};

class vProduct;

class vFloat {
public:
    detail::reg r;

    sfpi_inline vFloat() : r(detail::undefined()) {}
    vFloat(const vFloat&) = default;
    sfpi_inline vFloat(float value) : r(detail::load_bits(std::bit_cast<std::uint32_t>(value))) {}
    sfpi_inline vFloat(sFloat16b value) : r(detail::load_bits(value.bits())) {}
    sfpi_inline vFloat(sFloat16a value) : r(detail::load_bits(value.bits())) {}
    sfpi_inline vFloat(raw_vector value) : r(value.r) {}

    sfpi_inline vFloat& operator=(const vFloat& value) {
        detail::assign(r, value.r);
        return *this;
    }
    sfpi_inline raw_vector get() const { return {r}; }

    sfpi_inline vFloat& operator+=(const vFloat& value);
    sfpi_inline vFloat& operator-=(const vFloat& value);
    sfpi_inline vFloat& operator*=(const vFloat& value);
    sfpi_inline vFloat& operator+=(const vProduct& value);
    sfpi_inline vFloat& operator-=(const vProduct& value);
};

// A float vector that a conversion has rounded to the named 16-bit format; it is an FP32 value all the same.
struct vFloat16b : vFloat {
    using vFloat::vFloat;
};
struct vFloat16a : vFloat {
    using vFloat::vFloat;
};

enum class integer_kind { Int, UInt, SMag, Mag, SMag16, SMag8, UInt16, UInt8 };

// 32 bits per lane, read as two's complement (Int), unsigned (UInt), sign and magnitude (SMag) or a magnitude
// with a clear top bit (Mag). The sized kinds say what range a conversion has clamped to. Kinds convert to
// each other without a change of bits.
template <integer_kind K>
class integer {
public:
    detail::reg r;

    sfpi_inline integer() : r(detail::undefined()) {}
    integer(const integer&) = default;
    template <integer_kind J>
    sfpi_inline integer(const integer<J>& other) : r(other.r) {}
    template <std::integral T>
    sfpi_inline integer(T value) : r(detail::load_bits(encode(std::uint32_t(value)))) {}
    sfpi_inline integer(raw_vector value) : r(value.r) {}

    sfpi_inline integer& operator=(const integer& value) {
        detail::assign(r, value.r);
        return *this;
    }
    sfpi_inline raw_vector get() const { return {r}; }

private:
    static constexpr std::uint32_t encode(std::uint32_t value) {
        constexpr bool sign_magnitude =
            K == integer_kind::SMag || K == integer_kind::SMag16 || K == integer_kind::SMag8;
        return sign_magnitude && std::int32_t(value) < 0 ? 0x80000000u | (0u - value) : value;
    }
};

using vInt = integer<integer_kind::Int>;
using vUInt = integer<integer_kind::UInt>;
using vSMag = integer<integer_kind::SMag>;
using vMag = integer<integer_kind::Mag>;
using vSMag16 = integer<integer_kind::SMag16>;
using vSMag8 = integer<integer_kind::SMag8>;
using vUInt16 = integer<integer_kind::UInt16>;
using vUInt8 = integer<integer_kind::UInt8>;

namespace detail {

template <class T>
struct is_integer_vector : std::false_type {};
template <integer_kind K>
struct is_integer_vector<integer<K>> : std::true_type {};

template <class V>
sfpi_inline V wrap(reg r) {
    return V(raw_vector{r});
}

// A write to LREG11-14: SFPCONFIG broadcasts the first eight lanes of LREG0, which the driver arranges.
template <unsigned number>
sfpi_inline void configure(reg value) {
    static_assert(number >= 11 && number <= 14, "only LREG11 to LREG14 can be programmed");
    asm volatile("sfpu config %0 %1" ::"f"(value), "i"(number));
}

// A constant register under the type V; the programmable ones can be assigned to.
template <class V, unsigned number>
struct constant_register {
    sfpi_inline operator V() const { return wrap<V>(load_constant<number>()); }
    sfpi_inline void operator=(const V& value) const { configure<number>(value.r); }
    sfpi_inline raw_vector get() const { return {load_constant<number>()}; }
};

template <class T>
struct vector_of {
    using type = T;
};
template <class V, unsigned number>
struct vector_of<constant_register<V, number>> {
    using type = V;
};

template <class T>
concept IntegerVector = is_integer_vector<typename vector_of<std::remove_cvref_t<T>>::type>::value;

}  // namespace detail

constexpr detail::constant_register<vFloat, LREG_0P8373> vConst0p8373{};
constexpr detail::constant_register<vFloat, LREG_ZERO> vConst0{};
constexpr detail::constant_register<vFloat, LREG_ONE> vConst1{};
constexpr detail::constant_register<vFloat, LREG_NEGATIVE_ONE> vConstNeg1{};
constexpr detail::constant_register<vInt, LREG_TILE_ID> vConstTileId{};
constexpr detail::constant_register<vFloat, LREG_PROGRAMMABLE_0> vConstFloatPrgm0{};
constexpr detail::constant_register<vFloat, LREG_PROGRAMMABLE_0 + 1> vConstFloatPrgm1{};
constexpr detail::constant_register<vFloat, LREG_PROGRAMMABLE_0 + 2> vConstFloatPrgm2{};
constexpr detail::constant_register<vInt, LREG_PROGRAMMABLE_0> vConstIntPrgm0{};
constexpr detail::constant_register<vInt, LREG_PROGRAMMABLE_0 + 1> vConstIntPrgm1{};
constexpr detail::constant_register<vInt, LREG_PROGRAMMABLE_0 + 2> vConstIntPrgm2{};

// A change of type without a change of bits.
template <class To, class From>
sfpi_inline To as(const From& value) {
    return detail::wrap<To>(value.get().r);
}

}  // namespace sfpi
