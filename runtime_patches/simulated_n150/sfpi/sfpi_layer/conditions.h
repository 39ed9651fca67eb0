// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

// Comparisons and predication: v_if, v_elseif, v_else, v_and, v_endif.
//
// A comparison is a register and a SFPSETCC mode. Conditions combine into a small tree, which a scope applies
// to the lane flags: `narrow` leaves active those of the active lanes where the condition holds.

#pragma once

#include "sfpi_layer/destination.h"
#include "sfpi_layer/integer_ops.h"

namespace sfpi {

namespace detail {

sfpi_inline void push_flags() { SFPI_OP_0("pushc"); }
sfpi_inline void pop_flags() { SFPI_OP_0("popc"); }
// Active lanes of the enclosing scope that are not active now.
sfpi_inline void complement_flags() { SFPI_OP_0("compc"); }

struct condition_tag {};

// lane flag = register <op> 0. Modes 0 and 4, and 2 and 6, are each other's negation.
struct comparison : condition_tag {
    static constexpr bool needs_fresh_scope = false;
    reg r;
    std::uint32_t mode;

    sfpi_inline comparison(reg value, std::uint32_t set_mode) : r(value), mode(set_mode) {}
    sfpi_inline void narrow(bool negated) const {
        const std::uint32_t chosen = negated ? mode ^ 4 : mode;
        // One branch per mode: the mode is an immediate.
        if (chosen == SFPSETCC_MOD1_LREG_LT0) {
            asm volatile("sfpu setcc %0 0" ::"f"(r));
        } else if (chosen == SFPSETCC_MOD1_LREG_NE0) {
            asm volatile("sfpu setcc %0 2" ::"f"(r));
        } else if (chosen == SFPSETCC_MOD1_LREG_GTE0) {
            asm volatile("sfpu setcc %0 4" ::"f"(r));
        } else {
            asm volatile("sfpu setcc %0 6" ::"f"(r));
        }
    }
};

}  // namespace detail

// A condition as a value: 1 in lanes where it holds, 0 elsewhere.
class vBool : public detail::condition_tag {
    detail::reg mask_;

public:
    static constexpr bool needs_fresh_scope = false;

    template <class Condition>
        requires std::derived_from<Condition, detail::condition_tag>
    sfpi_inline vBool(const Condition& condition) : mask_(detail::load_bits(0)) {
        detail::push_flags();
        condition.narrow(false);
        detail::assign(mask_, detail::load_bits(1));
        detail::pop_flags();
    }
    vBool(const vBool&) = default;
    sfpi_inline vBool& operator=(const vBool& value) {
        detail::assign(mask_, value.mask_);
        return *this;
    }
    sfpi_inline void narrow(bool negated) const {
        detail::comparison(mask_, SFPSETCC_MOD1_LREG_NE0).narrow(negated);
    }
};

namespace detail {

template <class T>
concept Condition = std::derived_from<std::remove_cvref_t<T>, condition_tag>;

template <bool negated, class L, class R>
struct conjunction;

// Both must hold; or, negated, not both. The negated form complements within the scope, so it must be applied
// first: a second one in the same scope is turned into a mask.
template <bool negated, class L, class R>
struct conjunction : condition_tag {
    static constexpr bool needs_fresh_scope = negated || L::needs_fresh_scope || R::needs_fresh_scope;
    L left;
    R right;

    sfpi_inline conjunction(const L& l, const R& r) : left(l), right(r) {}
    sfpi_inline void narrow(bool flip) const {
        if (negated != flip) {
            if constexpr (L::needs_fresh_scope || R::needs_fresh_scope) {
                conjunction<false, vBool, vBool>(vBool(left), vBool(right)).narrow(true);
            } else {
                left.narrow(false);
                right.narrow(false);
                complement_flags();
            }
        } else {
            if constexpr (L::needs_fresh_scope && R::needs_fresh_scope) {
                vBool mask(right);
                left.narrow(false);
                mask.narrow(false);
            } else if constexpr (R::needs_fresh_scope) {
                right.narrow(false);
                left.narrow(false);
            } else {
                left.narrow(false);
                right.narrow(false);
            }
        }
    }
};

template <class C>
struct negation : condition_tag {
    static constexpr bool needs_fresh_scope = true;
    C inner;

    sfpi_inline explicit negation(const C& condition) : inner(condition) {}
    sfpi_inline void narrow(bool flip) const { inner.narrow(!flip); }
};

// A condition the running kernel knows as one bool for all lanes.
struct uniform : condition_tag {
    static constexpr bool needs_fresh_scope = false;
    bool value;

    sfpi_inline explicit uniform(bool v) : value(v) {}
    sfpi_inline void narrow(bool negated) const {
        if (value == negated) {
            reg zero = load_constant<LREG_ZERO>();
            asm volatile("sfpu setcc %0 2" ::"f"(zero));
        }
    }
};

sfpi_inline comparison negate(const comparison& c) { return comparison(c.r, c.mode ^ 4); }
template <class C>
sfpi_inline negation<C> negate(const C& c) {
    return negation<C>(c);
}

template <Condition C>
sfpi_inline auto operator!(const C& c) {
    return negate(c);
}
template <Condition L, Condition R>
sfpi_inline auto operator&&(const L& l, const R& r) {
    return conjunction<false, L, R>(l, r);
}
template <Condition L, Condition R>
sfpi_inline auto operator||(const L& l, const R& r) {
    using NotL = decltype(negate(l));
    using NotR = decltype(negate(r));
    return conjunction<true, NotL, NotR>(negate(l), negate(r));
}
template <Condition L>
sfpi_inline auto operator&&(const L& l, bool r) {
    return conjunction<false, L, uniform>(l, uniform(r));
}
template <Condition R>
sfpi_inline auto operator&&(bool l, const R& r) {
    return conjunction<false, uniform, R>(uniform(l), r);
}
template <Condition L>
sfpi_inline auto operator||(const L& l, bool r) {
    return l || uniform(r);
}
template <Condition R>
sfpi_inline auto operator||(bool l, const R& r) {
    return uniform(l) || r;
}

}  // namespace detail

// Float comparisons: the sign of a difference, as IEEE orders finite numbers. Against a literal zero the
// register itself is tested, so negative zero counts as negative there, as in SFPSETCC.
namespace detail {

sfpi_inline bool literal_zero(float value) {
    return __builtin_constant_p(value) && std::bit_cast<std::uint32_t>(value) == 0;
}

sfpi_inline comparison less(const vFloat& a, const vFloat& b) { return {(a - b).r, SFPSETCC_MOD1_LREG_LT0}; }
sfpi_inline comparison at_least(const vFloat& a, const vFloat& b) {
    return {(a - b).r, SFPSETCC_MOD1_LREG_GTE0};
}
sfpi_inline comparison equal(const vFloat& a, const vFloat& b) { return {(a - b).r, SFPSETCC_MOD1_LREG_EQ0}; }
sfpi_inline comparison against_zero(const vFloat& a, float b, std::uint32_t mode) {
    if (literal_zero(b)) {
        return {a.r, mode};
    }
    return {(a - vFloat(b)).r, mode};
}

}  // namespace detail

sfpi_inline detail::comparison operator<(const vFloat& a, const vFloat& b) { return detail::less(a, b); }
sfpi_inline detail::comparison operator>(const vFloat& a, const vFloat& b) { return detail::less(b, a); }
sfpi_inline detail::comparison operator>=(const vFloat& a, const vFloat& b) { return detail::at_least(a, b); }
sfpi_inline detail::comparison operator<=(const vFloat& a, const vFloat& b) { return detail::at_least(b, a); }
sfpi_inline detail::comparison operator==(const vFloat& a, const vFloat& b) { return detail::equal(a, b); }
sfpi_inline detail::comparison operator!=(const vFloat& a, const vFloat& b) {
    return detail::negate(detail::equal(a, b));
}

sfpi_inline detail::comparison operator<(const vFloat& a, float b) {
    return detail::against_zero(a, b, SFPSETCC_MOD1_LREG_LT0);
}
sfpi_inline detail::comparison operator>=(const vFloat& a, float b) {
    return detail::against_zero(a, b, SFPSETCC_MOD1_LREG_GTE0);
}
sfpi_inline detail::comparison operator==(const vFloat& a, float b) {
    return detail::against_zero(a, b, SFPSETCC_MOD1_LREG_EQ0);
}
sfpi_inline detail::comparison operator!=(const vFloat& a, float b) {
    return detail::against_zero(a, b, SFPSETCC_MOD1_LREG_NE0);
}
sfpi_inline detail::comparison operator>(const vFloat& a, float b) { return detail::less(vFloat(b), a); }
sfpi_inline detail::comparison operator<=(const vFloat& a, float b) { return detail::at_least(vFloat(b), a); }

// Integer comparisons: the sign of the difference in 32 bits, so operands further apart than 2^31 compare
// wrongly, as they do with SFPIADD. Unsigned ones are exact.
namespace detail {

template <class A, class B>
sfpi_inline comparison integer_difference(const A& a, const B& b, std::uint32_t mode) {
    if constexpr (std::integral<B>) {
        if (__builtin_constant_p(b) && b == 0) {
            return {vInt(a).r, mode};
        }
    }
    return {vInt(a - b).r, mode};
}

// a >= b without a sign: where the top bits differ a's decides, elsewhere the difference does.
sfpi_inline comparison unsigned_at_least(const vUInt& a, const vUInt& b) {
    const vUInt borrow = (~a & b) | ((~a | b) & (a - b));
    return {borrow.r, SFPSETCC_MOD1_LREG_GTE0};
}

template <class A, class B>
concept UnsignedComparison =
    IntegerOperands<A, B> && (std::is_same_v<A, vUInt> || std::is_same_v<B, vUInt>) &&
    (!std::is_same_v<A, vInt> && !std::is_same_v<B, vInt>);

}  // namespace detail

template <class A, class B>
    requires detail::IntegerOperands<A, B>
sfpi_inline detail::comparison operator==(const A& a, const B& b) {
    return detail::integer_difference(a, b, SFPSETCC_MOD1_LREG_EQ0);
}
template <class A, class B>
    requires detail::IntegerOperands<A, B>
sfpi_inline detail::comparison operator!=(const A& a, const B& b) {
    return detail::integer_difference(a, b, SFPSETCC_MOD1_LREG_NE0);
}
template <class A, class B>
    requires detail::IntegerOperands<A, B>
sfpi_inline detail::comparison operator<(const A& a, const B& b) {
    if constexpr (detail::UnsignedComparison<A, B>) {
        return detail::negate(detail::unsigned_at_least(a, b));
    } else {
        return detail::integer_difference(a, b, SFPSETCC_MOD1_LREG_LT0);
    }
}
template <class A, class B>
    requires detail::IntegerOperands<A, B>
sfpi_inline detail::comparison operator>=(const A& a, const B& b) {
    if constexpr (detail::UnsignedComparison<A, B>) {
        return detail::unsigned_at_least(a, b);
    } else {
        return detail::integer_difference(a, b, SFPSETCC_MOD1_LREG_GTE0);
    }
}
template <class A, class B>
    requires detail::IntegerOperands<A, B>
sfpi_inline detail::comparison operator>(const A& a, const B& b) {
    using V = detail::common<A, B>;
    if constexpr (std::integral<B> && std::is_same_v<V, vInt>) {
        return {(b - a).r, SFPSETCC_MOD1_LREG_LT0};
    } else {
        return V(b) < V(a);
    }
}
template <class A, class B>
    requires detail::IntegerOperands<A, B>
sfpi_inline detail::comparison operator<=(const A& a, const B& b) {
    using V = detail::common<A, B>;
    if constexpr (std::integral<B> && std::is_same_v<V, vInt>) {
        return {(b - a).r, SFPSETCC_MOD1_LREG_GTE0};
    } else {
        return V(b) >= V(a);
    }
}

// A hint to the SFPI compiler that the guarded code is near; it carries no meaning here.
template <detail::Condition C>
sfpi_inline const C& nearby(const C& condition) {
    return condition;
}

namespace detail {

class predicated_scope {
    unsigned depth_ = 1;

public:
    sfpi_inline predicated_scope() { push_flags(); }
    predicated_scope(const predicated_scope&) = delete;
    sfpi_inline ~predicated_scope() {
#pragma GCC unroll 8
        for (unsigned level = 0; level < depth_; ++level) {
            pop_flags();
        }
    }
    // First condition of the scope: the flags equal the pushed ones.
    template <Condition C>
    sfpi_inline void only(const C& condition) const {
        condition.narrow(false);
    }
    sfpi_inline void only(bool condition) const { uniform(condition).narrow(false); }
    template <IntegerVector V>
    sfpi_inline void only(const V& value) const {
        only(value != 0);
    }
    // One more condition in the same scope.
    template <Condition C>
    sfpi_inline void also(const C& condition) const {
        if constexpr (C::needs_fresh_scope) {
            vBool(condition).narrow(false);
        } else {
            condition.narrow(false);
        }
    }
    sfpi_inline void also(bool condition) const { uniform(condition).narrow(false); }
    template <IntegerVector V>
    sfpi_inline void also(const V& value) const {
        also(value != 0);
    }
    sfpi_inline void otherwise() const { complement_flags(); }
    sfpi_inline void otherwise_enter() {
        complement_flags();
        push_flags();
        ++depth_;
    }
};

}  // namespace detail

}  // namespace sfpi

#define v_if(condition)                               \
    {                                                 \
        ::sfpi::detail::predicated_scope _sfpi_scope; \
        _sfpi_scope.only(condition);
#define v_and(condition) _sfpi_scope.also(condition)
#define v_elseif(condition)        \
    _sfpi_scope.otherwise_enter(); \
    _sfpi_scope.only(condition);
#define v_else _sfpi_scope.otherwise();
#define v_endif }
