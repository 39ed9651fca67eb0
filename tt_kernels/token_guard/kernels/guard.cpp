// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Overwrites the tokens if a core of this chip that talks to other chips has given up on one of them.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t scratch_cb = get_named_compile_time_arg_val("scratch_cb");
    constexpr uint32_t states = get_named_compile_time_arg_val("states");
    constexpr uint32_t page_bytes = get_named_compile_time_arg_val("page_bytes");
    constexpr uint32_t pages = get_named_compile_time_arg_val("pages");
    constexpr uint32_t failed_words = get_named_compile_time_arg_val("failed_words");
    constexpr uint32_t failed = get_named_compile_time_arg_val("failed");
    constexpr uint32_t line_bytes = get_named_compile_time_arg_val("line_bytes");
    const auto tokens = TensorAccessor(ACCESSOR_ARGS(tokens), RUNTIME_ARG(tokens), page_bytes);

    // For each state: the core's x and y, the address of the line that holds its status, and the word in the line.
    const auto place = [](uint32_t state, uint32_t word) {
        return get_arg_val<uint32_t>(RUNTIME_INDEX(places) + 4 * state + word);
    };
    const uint32_t scratch = get_write_ptr(scratch_cb);
    for (uint32_t i = 0; i < states; ++i) {
        const uint64_t line = get_noc_addr(place(i, 0), place(i, 1), place(i, 2));
        noc_async_read(line, scratch + i * line_bytes, line_bytes);
    }
    noc_async_read_barrier();
    uint32_t found = 0;
    for (uint32_t i = 0; i < states; ++i) {
        const auto* line = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch + i * line_bytes);
        found |= line[place(i, 3)];
    }
    if (found == 0) {
        return;
    }
    volatile tt_l1_ptr uint32_t* page = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch);
    for (uint32_t i = 0; i < page_bytes / sizeof(uint32_t); ++i) {
        page[i] = i < failed_words ? failed : 0;
    }
    for (uint32_t row = 0; row < pages; ++row) {
        noc_async_write(scratch, tokens.get_noc_addr(row), page_bytes);
    }
    noc_async_write_barrier();
}
