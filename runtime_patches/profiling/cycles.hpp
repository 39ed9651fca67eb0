// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Cycle counts of every kernel, written by each core into its own L1. See cycles.py.
//
// The firmware and the kernel stubs already mark the two spans worth timing, for the profiler of Tracy
// builds: DeviceZoneScopedMainN around a whole program on BRISC (go message to all five RISCs done) and
// DeviceZoneScopedMainChildN around a kernel on its RISC. Without that profiler both expand to nothing. The
// runtime root appends an include of this file to the header that defines them, and here they become a span.
//
// The words are in the region tt-metal reserves for LLK debugging, after the part its checkpoints use
// and before its end, where the gate of SGDC (static graph, dynamic concurrency) is.
#pragma once

#if !defined(PROFILE_KERNEL) && !defined(DISPATCH_KERNEL) && \
    (defined(COMPILE_FOR_BRISC) || defined(COMPILE_FOR_NCRISC) || defined(COMPILE_FOR_TRISC))

namespace kernel_cycles {

constexpr uint32_t WORDS_PER_SPAN = 4;  // start and end of the last run, cycles of all runs, number of runs
constexpr uint32_t REGION_OFFSET = 512;
constexpr uint32_t SPANS = 6;  // the program, then BRISC, NCRISC, TRISC0, TRISC1, TRISC2
constexpr uint32_t REGION = MEM_LLK_DEBUG_BASE + REGION_OFFSET;
constexpr uint32_t SKIP_WORD = SPANS * WORDS_PER_SPAN;  // not 0: do not count the running program
static_assert(
    REGION_OFFSET + (SKIP_WORD + 1) * 4 <= MEM_LLK_DEBUG_SIZE - 128, "the words leave their region");

#if defined(COMPILE_FOR_BRISC)
constexpr uint32_t KERNEL_SPAN = 1;
#elif defined(COMPILE_FOR_NCRISC)
constexpr uint32_t KERNEL_SPAN = 2;
#else
constexpr uint32_t KERNEL_SPAN = 3 + COMPILE_FOR_TRISC;
#endif

inline __attribute__((always_inline)) uint32_t now() {
    return *reinterpret_cast<volatile uint32_t*>(RISCV_DEBUG_REG_WALL_CLOCK_L);
}

template <uint32_t span>
struct Span {
    uint32_t start;
    inline __attribute__((always_inline)) Span() : start(now()) {}
    inline __attribute__((always_inline)) ~Span() {
#if defined(COMPILE_FOR_TRISC)
        ckernel::tensix_sync();  // the RISC is done long before the instructions it issued
#endif
        const uint32_t end = now();
        volatile uint32_t* words = reinterpret_cast<volatile uint32_t*>(REGION + span * WORDS_PER_SPAN * 4);
        if constexpr (span == 0) {
            volatile uint32_t* skip = reinterpret_cast<volatile uint32_t*>(REGION + SKIP_WORD * 4);
            if (*skip != 0) {
                *skip = 0;
                return;
            }
        }
        words[0] = start;
        words[1] = end;
        words[2] += end - start;
        words[3] += 1;
    }
};

}  // namespace kernel_cycles

#if defined(COMPILE_FOR_BRISC) && !defined(KERNEL_BUILD)
#undef DeviceZoneScopedMainN
#define DeviceZoneScopedMainN(name) ::kernel_cycles::Span<0> program_span
#endif

// A kernel that must not disturb the counts, such as the one that collects them, defines KERNEL_CYCLES_OFF;
// it keeps its program out of the program's span by setting the skip word.
// KERNEL_CYCLES_BEFORE() is for the kernel to redefine: what it does before its span begins.
#if defined(KERNEL_BUILD) && !defined(KERNEL_CYCLES_OFF)
#if !defined(KERNEL_CYCLES_BEFORE)
#define KERNEL_CYCLES_BEFORE()
#endif
#undef DeviceZoneScopedMainChildN
#define DeviceZoneScopedMainChildN(name) \
    KERNEL_CYCLES_BEFORE();              \
    ::kernel_cycles::Span<::kernel_cycles::KERNEL_SPAN> kernel_span
#endif

#endif
