// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Holds a data movement kernel before its first instruction until all others of the program are there too, so that
// cycles do not depend on when the host started which core. The runtime root's cycle counts (runtime_patches/cycles.hpp)
// call this hook before a kernel's span begins. See start_line.py, which also gives the common runtime arguments from
// START_LINE_ARG on.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace start_line {

constexpr uint32_t notice_cycles = 4096;  // all have read the time to start at before it comes
constexpr uint32_t pause_cycles = 256;    // between two looks at it

inline uint32_t arg(uint32_t index) { return get_common_arg_val<uint32_t>(START_LINE_ARG + index); }

inline bool before(uint32_t time) { return static_cast<int32_t>(kernel_cycles::now() - time) < 0; }

inline void wait() {
    const uint32_t kernels = arg(0);
    const bool first = get_absolute_logical_x() == arg(1) && get_absolute_logical_y() == arg(2);
    const uint32_t arrived_at = get_semaphore(arg(5));
    const uint32_t time_at = get_semaphore(arg(6));
    volatile tt_l1_ptr uint32_t* arrived = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(arrived_at);
    volatile tt_l1_ptr uint32_t* time = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(time_at);

    noc_semaphore_inc(get_noc_addr(arg(3), arg(4), arrived_at), 1);
    noc_async_atomic_barrier();
    uint32_t start = 0;
    while (start == 0) {
        if (first) {
#if defined(COMPILE_FOR_BRISC)
            if (*arrived == kernels) {
                *time = (kernel_cycles::now() + notice_cycles) | 1;
            }
#endif
        } else {
            noc_async_read(get_noc_addr(arg(3), arg(4), time_at), time_at, sizeof(uint32_t));
            noc_async_read_barrier();
        }
        start = *time;
        for (const uint32_t next = kernel_cycles::now() + pause_cycles; start == 0 && before(next);) {
        }
    }
    while (before(start)) {
    }
}

}  // namespace start_line

#undef KERNEL_CYCLES_BEFORE
#define KERNEL_CYCLES_BEFORE() ::start_line::wait()
