// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The compute gate of SGDC (static graph, dynamic concurrency) with priority gating (ALSpec paper, section
// 4.2 and appendix E).
//
// One word of every worker core's L1 holds the gate. While it holds SGDC_GATE_CLOSED a kernel returns right
// after its go message; launch, completion and all other bookkeeping of the runtime stay as they are. The
// gate is data: one binary serves both outcomes. A kernel compiled with SGDC_UNGATED defined runs whatever
// the gate says.

#pragma once

#include <cstdint>

#include "dev_mem_map.h"

#if defined(ARCH_WORMHOLE)

// The last 16 bytes of the LLK debug region. Its first user, the LLK sanitizer or the debug checkpoints,
// keeps its state at the region's start; the assertions below and the one in trisck.cc keep them apart.
#define SGDC_GATE_SIZE 16
#define SGDC_GATE_BASE (MEM_LLK_DEBUG_BASE + MEM_LLK_DEBUG_SIZE - SGDC_GATE_SIZE)
// L1 is not cleared when a device opens: neither 0 nor 1 nor an erased pattern may close the gate.
#define SGDC_GATE_CLOSED 0x5347C105u
#define SGDC_GATE_OPEN 0u

static_assert(SGDC_GATE_BASE % 16 == 0, "SGDC: the gate must be aligned for the NoC");
static_assert(
    SGDC_GATE_BASE >= MEM_ZEROS_BASE + MEM_ZEROS_SIZE,
    "SGDC: the gate is in the zeros every kernel may read");
static_assert(SGDC_GATE_BASE >= MEM_MAILBOX_BASE + MEM_MAILBOX_SIZE, "SGDC: the gate is in the mailboxes");
static_assert(
    SGDC_GATE_BASE + SGDC_GATE_SIZE <= MEM_BRISC_FIRMWARE_BASE, "SGDC: the gate is in the BRISC firmware");
static_assert(SGDC_GATE_BASE >= MEM_LLK_DEBUG_BASE, "SGDC: the gate is outside the LLK debug region");
#if defined(DEBUG_CHECKPOINT_ENABLED)
#include "api/debug/checkpoint.h"
static_assert(
    sizeof(debug_checkpoint_state_t) <= MEM_LLK_DEBUG_SIZE - SGDC_GATE_SIZE,
    "SGDC: the state of the debug checkpoints reaches the gate");
#endif

// Dispatch kernels have to run for the gate ever to open again. Ethernet and fabric router kernels are
// compiled from other stubs, which have no gate.
#if defined(KERNEL_BUILD) && !defined(DISPATCH_KERNEL) && !defined(SGDC_UNGATED)
#define SKIP_COMPUTE SGDC_GATE_BASE
#endif

#if defined(SKIP_COMPUTE)
namespace sgdc {
inline __attribute__((always_inline)) bool skip_compute() {
    return *reinterpret_cast<volatile uint32_t*>(SKIP_COMPUTE) == SGDC_GATE_CLOSED;
}
}  // namespace sgdc
#endif

#else  // no gate on other architectures: their stubs behave as before
#define SGDC_GATE_SIZE 0
#endif  // ARCH_WORMHOLE
