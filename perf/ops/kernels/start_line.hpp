// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Holds a kernel before its first instruction until all others of the program are there too, so that cycles do not
// depend on when the host started which core. The runtime root's cycle counts (runtime_patches/profiling/cycles.hpp) call this
// hook before a kernel's span begins. See start_line.py, which also gives the common runtime arguments from
// START_LINE_ARG on: how many data movement kernels there are and on how many cores, the address of Words of zeros in
// the L1 of each core, then of each core, the first one before the others, its x and y on the NoC.
//
// Whoever waits only reads its own L1: that costs the simulator next to nothing.

#pragma once

#include <cstdint>

#if defined(COMPILE_FOR_TRISC)
#include "api/compute/common.h"
#else
#include "api/dataflow/dataflow_api.h"
#endif
#include "api/debug/kernel_profiler.hpp"

namespace start_line {

// All cores know the time to start at before it comes: the first one tells them one after another.
constexpr uint32_t notice_cycles = 512, notice_cycles_per_core = 128;
constexpr uint32_t first_core_arg = 3;

inline uint32_t arg(uint32_t index) { return get_common_arg_val<uint32_t>(START_LINE_ARG + index); }

struct Words {
    uint32_t arrived;  // on the first core: data movement kernels
    uint32_t padding[3];
    uint32_t time;  // to start at, not 0
};

inline bool before(uint32_t time) { return static_cast<int32_t>(kernel_cycles::now() - time) < 0; }

#if !defined(COMPILE_FOR_TRISC)

inline uint64_t address_on(uint32_t core, const volatile uint32_t* word) {
    const uint32_t at = first_core_arg + 2 * core;
    return get_noc_addr(arg(at), arg(at + 1), reinterpret_cast<uint32_t>(word));
}

inline void arrive(volatile Words* words) {
    noc_semaphore_inc(address_on(0, &words->arrived), 1);
    noc_async_atomic_barrier();
#if defined(COMPILE_FOR_BRISC)
    const uint32_t kernels = arg(0), cores = arg(1);
    if (my_x[noc_index] == arg(first_core_arg) && my_y[noc_index] == arg(first_core_arg + 1)) {
        while (words->arrived != kernels) {
        }
        words->time = (kernel_cycles::now() + notice_cycles + cores * notice_cycles_per_core) | 1;
        for (uint32_t core = 1; core < cores; ++core) {
            noc_async_write(
                reinterpret_cast<uint32_t>(&words->time), address_on(core, &words->time), sizeof(uint32_t));
        }
        noc_async_write_barrier();
    }
#endif
}

#endif

inline void wait() {
    volatile Words* words = reinterpret_cast<volatile Words*>(arg(2));
#if !defined(COMPILE_FOR_TRISC)
    arrive(words);
#endif
    while (words->time == 0) {
    }
    const uint32_t start = words->time;
    while (before(start)) {
    }
}

}  // namespace start_line

#undef KERNEL_CYCLES_BEFORE  // of this RISC's kernel
#define KERNEL_CYCLES_BEFORE() ::start_line::wait()
