// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Fills a buffer from `seed` on, writes it to a row of the output with the buffer's address as its first word, and
// counts in a semaphore, if there is one, on this core and on another.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"

constexpr uint32_t buffer = get_named_compile_time_arg_val("buffer");
constexpr uint32_t words = get_named_compile_time_arg_val("words");

void kernel_main() {
    const auto output = TensorAccessor(ACCESSOR_ARGS(output), COMMON_ARG(output));
    cb_reserve_back(buffer, 1);
    const uint32_t address = get_write_ptr(buffer);
    volatile tt_l1_ptr uint32_t* data = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(address);
    for (uint32_t i = 0; i < words; ++i) {
        data[i] = COMMON_ARG(seed) + i;
    }
    data[0] = address;
    cb_push_back(buffer, 1);
    noc_async_write(address, output.get_noc_addr(COMMON_ARG(row)), words * sizeof(uint32_t));
    if (const uint32_t counter = COMMON_ARG(counter)) {
        noc_semaphore_inc(get_noc_addr(counter), 1);
        noc_semaphore_inc(get_noc_addr(COMMON_ARG(other_x), COMMON_ARG(other_y), counter), 1);
        noc_async_atomic_barrier();
    }
    noc_async_write_barrier();
}
