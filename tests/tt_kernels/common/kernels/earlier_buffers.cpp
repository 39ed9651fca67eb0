// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Fills the last page of each circular buffer of its program with a pattern, or says which of them no longer hold it:
// a bit for each. Compiled without ARGUMENTS it only takes the buffers' addresses, as any kernel does.

#if defined(ARGUMENTS)

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"

namespace {

constexpr uint32_t buffers = get_named_compile_time_arg_val("buffers");
constexpr uint32_t page_bytes = get_named_compile_time_arg_val("page_bytes");
constexpr uint32_t pattern = get_named_compile_time_arg_val("pattern");

volatile tt_l1_ptr uint32_t* page_of(uint32_t cb) {
    return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_local_cb_interface(cb).fifo_limit - page_bytes);
}

bool is_touched(uint32_t cb) {
    for (uint32_t i = 0; i < page_bytes / sizeof(uint32_t); ++i) {
        if (page_of(cb)[i] != pattern) {
            return true;
        }
    }
    return false;
}

}  // namespace

void kernel_main() {
    if (COMMON_ARG(fill)) {
        for (uint32_t cb = 0; cb < buffers; ++cb) {
            for (uint32_t i = 0; i < page_bytes / sizeof(uint32_t); ++i) {
                page_of(cb)[i] = pattern;
            }
        }
        return;
    }
    uint32_t touched = 0;
    for (uint32_t cb = 0; cb < buffers; ++cb) {
        touched |= (is_touched(cb) ? 1u : 0u) << cb;
    }
    volatile tt_l1_ptr uint32_t* found = page_of(0);
    found[0] = touched;
    (void)found[0];  // read back: it has reached L1
    const auto output = TensorAccessor(ACCESSOR_ARGS(found), RUNTIME_ARG(found));
    noc_async_write(
        reinterpret_cast<uint32_t>(found), output.get_noc_addr(RUNTIME_ARG(page)), sizeof(uint32_t));
    noc_async_write_barrier();
}

#else

void kernel_main() {}

#endif
