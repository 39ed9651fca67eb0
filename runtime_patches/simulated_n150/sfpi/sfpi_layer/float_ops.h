// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

// Float arithmetic. a * b waits as a product, so that a * b + c becomes one SFPMAD.

#pragma once

#include "sfpi_layer/types.h"

namespace sfpi {

class vProduct {
public:
    vFloat a, b;

    sfpi_inline vProduct(const vFloat& first, const vFloat& second) : a(first), b(second) {}
    sfpi_inline operator vFloat() const {
        detail::reg result;
        asm volatile("sfpu mul %0 %1 %2" : "=f"(result) : "f"(a.r), "f"(b.r));
        return detail::wrap<vFloat>(result);
    }
    sfpi_inline raw_vector get() const { return vFloat(*this).get(); }
};

namespace detail {

sfpi_inline vFloat multiply_add(const vFloat& a, const vFloat& b, const vFloat& c) {
    return wrap<vFloat>(mad(a.r, b.r, c.r));
}

}  // namespace detail

sfpi_inline vFloat operator-(const vFloat& value) {
    detail::reg result;
    SFPI_UNARY("mov", result, value.r, 0, SFPMOV_MOD1_NEGATE);
    return detail::wrap<vFloat>(result);
}

sfpi_inline vProduct operator*(const vFloat& a, const vFloat& b) { return vProduct(a, b); }

sfpi_inline vFloat operator+(const vFloat& a, const vFloat& b) {
    detail::reg result;
    asm volatile("sfpu add %0 %1 %2" : "=f"(result) : "f"(a.r), "f"(b.r));
    return detail::wrap<vFloat>(result);
}
sfpi_inline vFloat operator+(const vProduct& p, const vFloat& c) { return detail::multiply_add(p.a, p.b, c); }
sfpi_inline vFloat operator+(const vFloat& c, const vProduct& p) { return detail::multiply_add(p.a, p.b, c); }
sfpi_inline vFloat operator+(const vProduct& p, const vProduct& q) { return p + vFloat(q); }

// There is no subtraction: b * -1 + a, with -1 from LREG11.
sfpi_inline vFloat operator-(const vFloat& a, const vFloat& b) {
    return detail::multiply_add(b, vConstNeg1, a);
}
sfpi_inline vFloat operator-(const vFloat& c, const vProduct& p) {
    return detail::multiply_add(-p.a, p.b, c);
}
sfpi_inline vFloat operator-(const vProduct& p, const vFloat& c) {
    return detail::multiply_add(p.a, p.b, -c);
}
sfpi_inline vFloat operator-(const vProduct& p, const vProduct& q) { return vFloat(p) - q; }

sfpi_inline vFloat& vFloat::operator+=(const vFloat& value) { return *this = *this + value; }
sfpi_inline vFloat& vFloat::operator-=(const vFloat& value) { return *this = *this - value; }
sfpi_inline vFloat& vFloat::operator*=(const vFloat& value) { return *this = *this * value; }
sfpi_inline vFloat& vFloat::operator+=(const vProduct& value) { return *this = *this + value; }
sfpi_inline vFloat& vFloat::operator-=(const vProduct& value) { return *this = *this - value; }

}  // namespace sfpi

// The multiply-add that kernels name directly.
sfpi_inline sfpi::raw_vector __builtin_rvtt_sfpmad(
    sfpi::raw_vector a, sfpi::raw_vector b, sfpi::raw_vector c, unsigned) {
    return {sfpi::detail::mad(a.r, b.r, c.r)};
}
