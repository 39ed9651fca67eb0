// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

// dst_reg: the destination register file, 32 lanes at a time.

#pragma once

#include "sfpi_layer/float_ops.h"

namespace sfpi {

// How 32 bits of the destination are read into a lane and written from it.
enum class DataLayout { Default, FSrcB, F16a, F16b, F32, I32, U32, SM32, I16, U16, I8, U8 };

namespace detail {

constexpr unsigned destination_mode(DataLayout layout) {
    switch (layout) {
        case DataLayout::F16a: return 1;
        case DataLayout::F16b: return 2;
        case DataLayout::F32: return 3;
        case DataLayout::I32:
        case DataLayout::U32: return 4;
        case DataLayout::I8: return 13;
        case DataLayout::U8: return 5;
        case DataLayout::U16: return 6;
        case DataLayout::I16: return 8;
        case DataLayout::SM32: return 12;
        default: return 0;
    }
}

// Without a layout: floats as the unpacked format says, two's complement integers as sign and magnitude in
// the destination (the format of Int32 there), every other integer bit for bit.
template <class V>
constexpr DataLayout default_layout() {
    if constexpr (std::is_same_v<V, vInt>) {
        return DataLayout::SM32;
    } else if constexpr (is_integer_vector<V>::value) {
        return DataLayout::I32;
    } else {
        return DataLayout::FSrcB;
    }
}

template <class T>
concept AnyVector = is_integer_vector<T>::value || std::is_same_v<T, vFloat>;

}  // namespace detail

template <DataLayout layout>
class destination_row {
    std::uint32_t address_;

    template <class V>
    static constexpr unsigned mode_for() {
        return detail::destination_mode(layout == DataLayout::Default ? detail::default_layout<V>() : layout);
    }
    template <class V>
    sfpi_inline void store(const V& value) const {
        detail::store_destination<mode_for<V>()>(value.r, address_);
    }

public:
    sfpi_inline constexpr explicit destination_row(std::uint32_t address) : address_(address) {}

    template <detail::AnyVector V>
    sfpi_inline operator V() const {
        return detail::wrap<V>(detail::load_destination<mode_for<V>()>(address_));
    }

    sfpi_inline void operator=(const vFloat& value) const { store(value); }
    sfpi_inline void operator=(const vProduct& value) const { store(vFloat(value)); }
    template <integer_kind K>
    sfpi_inline void operator=(const integer<K>& value) const {
        store(value);
    }
    template <class V, unsigned number>
    sfpi_inline void operator=(const detail::constant_register<V, number>& value) const {
        store(V(value));
    }
    sfpi_inline void operator=(float value) const { store(vFloat(value)); }
    sfpi_inline void operator=(std::integral auto value) const { store(vInt(value)); }
    template <DataLayout other>
    sfpi_inline void operator=(const destination_row<other>& value) const {
        store(vFloat(value));
    }
    sfpi_inline void operator=(const destination_row& value) const { store(vFloat(value)); }
    destination_row(const destination_row&) = default;

    template <DataLayout other>
    sfpi_inline destination_row<other> mode() const {
        return destination_row<other>(address_);
    }
    // With an address modifier other than the default 3 (which kernels leave at no increment).
    template <DataLayout other = layout>
    sfpi_inline destination_row<other> mode(std::uint32_t address_modifier) const {
        return destination_row<other>((address_ & 0x3ff) | address_modifier << 14);
    }
    sfpi_inline raw_vector get() const { return vFloat(*this).get(); }
};

namespace detail {

template <std::uint32_t rows>
sfpi_inline void advance_destination() {
    // INCRWC: destination counter += rows
    asm volatile(".ttinsn %0" ::"i"(0x38u << 24 | rows << 14));
}

struct destination_file {
    sfpi_inline destination_row<DataLayout::Default> operator[](std::uint32_t index) const {
        return destination_row<DataLayout::Default>(
            ((index * SFP_DESTREG_STRIDE) & 0x3ff) | SFPLOAD_ADDR_MODE_NOINC << 14);
    }
    sfpi_inline void operator++(int) const { advance_destination<SFP_DESTREG_STRIDE>(); }
    sfpi_inline void operator++() const { advance_destination<SFP_DESTREG_STRIDE>(); }
    sfpi_inline void operator+=(std::uint32_t count) const {
        if (__builtin_constant_p(count)) {
            asm volatile(".ttinsn %0" ::"i"(0x38u << 24 | (count * SFP_DESTREG_STRIDE) << 14));
        } else {
            __instrn_buffer[0] = 0x38u << 24 | (count * SFP_DESTREG_STRIDE) << 14;
        }
    }
};

}  // namespace detail

constexpr detail::destination_file dst_reg{};

// The eight general registers by number, for values that stay in place between functions.
enum class LRegs { LReg0, LReg1, LReg2, LReg3, LReg4, LReg5, LReg6, LReg7, LReg_count };

namespace detail {

class named_register {
    unsigned number_;

public:
    sfpi_inline constexpr explicit named_register(unsigned number) : number_(number) {}
    template <class V>
        requires requires(raw_vector raw) { V(raw); }
    sfpi_inline operator V() const {
        reg result;
        asm volatile("sfpu pin_read %0 %1" : "=f"(result) : "i"(number_));
        return wrap<V>(result);
    }
    template <class V>
    sfpi_inline void operator=(const V& value) const {
        asm volatile("sfpu pin_write %0 %1" ::"f"(value.get().r), "i"(number_));
    }
    // The register holds a value from here on that the vector code above does not know of.
    sfpi_inline void in_use() const { asm volatile("sfpu pin_used %0" ::"i"(number_)); }
};

struct register_file {
    sfpi_inline constexpr named_register operator[](LRegs number) const {
        return named_register(unsigned(number));
    }
};

}  // namespace detail

constexpr detail::register_file l_reg{};

}  // namespace sfpi
