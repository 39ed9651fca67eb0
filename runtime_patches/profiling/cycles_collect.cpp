// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Copies the cycle words of this core (cycles.hpp) to one page of a tensor, and clears them. BRISC, one
// instance per core. Compile-time arguments: size of the page in bytes, index of a circular buffer of one page,
// then the tensor's accessor. Runtime arguments: address of the tensor, page of this core.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

void kernel_main() {
    constexpr uint32_t page_size = get_compile_time_arg_val(0);
    constexpr uint32_t buffer = get_compile_time_arg_val(1);
    constexpr auto layout = TensorAccessorArgs<2>();
    constexpr uint32_t words = kernel_cycles::SPANS * kernel_cycles::WORDS_PER_SPAN;
    static_assert(words * 4 <= page_size, "the page cannot hold the spans");

    const auto counts = TensorAccessor(layout, get_arg_val<uint32_t>(0), page_size);
    volatile uint32_t* page = reinterpret_cast<volatile uint32_t*>(get_write_ptr(buffer));
    volatile uint32_t* region = reinterpret_cast<volatile uint32_t*>(kernel_cycles::REGION);
    for (uint32_t i = 0; i < page_size / 4; ++i) {
        page[i] = i < words ? region[i] : 0;
    }
    for (uint32_t i = 0; i < words; ++i) {
        region[i] = 0;
    }
    region[kernel_cycles::SKIP_WORD] = 1;
    noc_async_write(get_write_ptr(buffer), counts.get_noc_addr(get_arg_val<uint32_t>(1)), page_size);
    noc_async_write_barrier();
}
