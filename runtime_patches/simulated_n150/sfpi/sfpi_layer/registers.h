// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

// How a vector value travels through stock GCC.
//
// A vector register is held in a `float`, so GCC's optimizer and register allocator carry it in an f register
// of an rv32imf core with the soft-float ABI: 32 virtual registers, none of which exists on the chip. Each
// vector instruction is one line of inline assembly, `sfpu <name> <operands>`, with those registers as
// operands. The driver then replaces such lines: compiler/sfpu/vector.py allocates the eight real LREGs to what
// GCC has left, and refuses a function that needs more, or one where real float instructions remain.
//
// The lines are `asm volatile`: a write depends on the current lane flags, which GCC does not know, so
// their order must stay. "=f" results are whole new values (what inactive lanes hold is never used); "+f"
// results keep the old value in inactive lanes.

#pragma once

#include <cstdint>

extern volatile std::uint32_t __instrn_buffer[];

namespace sfpi::detail {

using reg = float;

#define SFPI_OP_0(line) asm volatile("sfpu " line)
#define SFPI_OP_I(line, immediate) asm volatile("sfpu " line " %0" ::"i"(immediate))

// result = op(source), mode and immediate known at compile time
#define SFPI_UNARY(name, result, source, immediate, mode) \
    asm volatile("sfpu " name " %0 %1 %2 %3" : "=f"(result) : "f"(source), "i"(immediate), "i"(mode))

// target = op(target, source) in place
#define SFPI_IN_PLACE(name, target, source, immediate, mode) \
    asm volatile("sfpu " name " %0 %1 %2 %3" : "+f"(target) : "f"(source), "i"(immediate), "i"(mode))

// The same with an immediate that only the running kernel knows: the instruction word is completed in an
// integer register and stored to the instruction buffer. `field` is the immediate shifted to its place in the
// word.
#define SFPI_UNARY_RUNTIME(name, result, source, field, mode)                     \
    do {                                                                          \
        std::uint32_t word;                                                       \
        asm volatile("sfpu " name " %0 %2 rt %5 %1 %3 %4"                         \
                     : "=f"(result), "=&r"(word)                                  \
                     : "f"(source), "r"(field), "r"(__instrn_buffer), "i"(mode)); \
    } while (0)
#define SFPI_IN_PLACE_RUNTIME(name, target, source, field, mode)                  \
    do {                                                                          \
        std::uint32_t word;                                                       \
        asm volatile("sfpu " name " %0 %2 rt %5 %1 %3 %4"                         \
                     : "+f"(target), "=&r"(word)                                  \
                     : "f"(source), "r"(field), "r"(__instrn_buffer), "i"(mode)); \
    } while (0)

// All 32 bits of every active lane.
sfpi_inline reg load_bits(std::uint32_t bits) {
    reg result;
    if (__builtin_constant_p(bits)) {
        asm volatile("sfpu loadi %0 %1" : "=f"(result) : "i"(bits));
    } else {
        std::uint32_t word;
        asm volatile("sfpu loadi_rt %0 2 %1 %2 %3"
                     : "=f"(result), "=&r"(word)
                     : "r"(bits & 0xffff), "r"(__instrn_buffer));
        asm volatile("sfpu loadi_rt_part %0 8 %1 %2 %3"
                     : "+f"(result), "=&r"(word)
                     : "r"(bits >> 16), "r"(__instrn_buffer));
    }
    return result;
}

// A variable without initializer: any value, but one that begins here. If GCC saw it undefined it would be live
// from the start of the function.
sfpi_inline reg undefined() {
    reg result;
    asm volatile("sfpu undefined %0" : "=f"(result));
    return result;
}

// A constant register, LREG8 to LREG15, as a value.
template <unsigned number>
sfpi_inline reg load_constant() {
    reg result;
    asm volatile("sfpu const %0 %1" : "=f"(result) : "i"(number));
    return result;
}

// target = value where lanes are active.
sfpi_inline void assign(reg& target, reg value) {
    asm volatile("sfpu assign %0 %1" : "+f"(target) : "f"(value));
}

sfpi_inline reg mad(reg a, reg b, reg c) {
    reg result;
    asm volatile("sfpu mad %0 %1 %2 %3" : "=f"(result) : "f"(a), "f"(b), "f"(c));
    return result;
}

// `address`: row address in bits 9:0, address modifier in bits 15:14.
template <unsigned mode>
sfpi_inline reg load_destination(std::uint32_t address) {
    reg result;
    if (__builtin_constant_p(address)) {
        asm volatile("sfpu load %0 %1 %2" : "=f"(result) : "i"(mode), "i"(address));
    } else {
        std::uint32_t word;
        asm volatile("sfpu load_rt %0 %4 %1 %2 %3"
                     : "=f"(result), "=&r"(word)
                     : "r"(address), "r"(__instrn_buffer), "i"(mode));
    }
    return result;
}

template <unsigned mode>
sfpi_inline void store_destination(reg value, std::uint32_t address) {
    if (__builtin_constant_p(address)) {
        asm volatile("sfpu store %0 %1 %2" ::"f"(value), "i"(mode), "i"(address));
    } else {
        std::uint32_t word;
        asm volatile("sfpu store_rt %1 %4 %0 %2 %3"
                     : "=&r"(word)
                     : "f"(value), "r"(address), "r"(__instrn_buffer), "i"(mode));
    }
}

}  // namespace sfpi::detail
