// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Overwrites the tokens where one of the states of this chip has a status that is not 0.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

void kernel_main() {
    constexpr uint32_t scratch_cb = get_compile_time_arg_val(0);
    constexpr uint32_t states = get_compile_time_arg_val(1);
    constexpr uint32_t page_bytes = get_compile_time_arg_val(2);
    constexpr uint32_t failed = get_compile_time_arg_val(3);
    constexpr auto token_args = TensorAccessorArgs<4>();
    constexpr uint32_t head_bytes = 64;  // of a state, with its status
    const auto tokens = TensorAccessor(token_args, get_arg_val<uint32_t>(0), page_bytes);

    const uint32_t scratch = get_write_ptr(scratch_cb);
    // Of each state: x and y of its core, its address, which word the status is.
    for (uint32_t i = 0; i < states; ++i) {
        const uint32_t at = 1 + 4 * i;
        const uint64_t state =
            get_noc_addr(get_arg_val<uint32_t>(at), get_arg_val<uint32_t>(at + 1), get_arg_val<uint32_t>(at + 2));
        noc_async_read(state, scratch + i * head_bytes, head_bytes);
    }
    noc_async_read_barrier();
    bool fine = true;
    for (uint32_t i = 0; i < states; ++i) {
        const auto* state = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch + i * head_bytes);
        fine = fine && state[get_arg_val<uint32_t>(4 + 4 * i)] == 0;
    }
    if (fine) {
        return;
    }
    volatile tt_l1_ptr uint32_t* page = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch);
    for (uint32_t i = 0; i < page_bytes / sizeof(uint32_t); ++i) {
        page[i] = failed;
    }
    noc_async_write(scratch, tokens.get_noc_addr(0), page_bytes);
    noc_async_write_barrier();
}
