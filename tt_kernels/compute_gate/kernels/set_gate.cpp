// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Writes this core's gate word from its chip's priorities; the first core also counts the layer in the log. Compiled
// with FORCE_OPEN it opens the gate and reads nothing.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "internal/sgdc_gate.h"
#ifndef FORCE_OPEN
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/priority.hpp"
#endif

#ifndef SGDC_UNGATED
#error "the gate writer must be compiled with SGDC_UNGATED, or a closed gate could never open"
#endif

namespace {

void write_gate(uint32_t value) {
    volatile tt_l1_ptr uint32_t* gate = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(SGDC_GATE_BASE);
    *gate = value;
    // Read back: the word is in L1 before this program reports that it is done.
    while (*gate != value);
}

#if defined(OUTCOME_LOG)
// A row of the log: the number of calls, counters by priority value, then the last call's priorities.
constexpr uint32_t counters = 8;
constexpr uint32_t log_row_bytes = counters * sizeof(uint32_t) + priority::row_bytes;

void count_outcomes(volatile tt_l1_ptr uint32_t* row, const volatile uint32_t* own, uint32_t users) {
    row[0] += 1;
    for (uint32_t user = 0; user < users; ++user) {
        const uint32_t value = own[user];
        if (value <= priority::holds_exact_unverified) {
            row[1 + value] += 1;
        } else {
            row[counters - 1] += 1;
        }
        row[counters + user] = value;
    }
}
#endif

}  // namespace

void kernel_main() {
#if defined(FORCE_OPEN)
    write_gate(SGDC_GATE_OPEN);
#else
    constexpr uint32_t users = get_named_compile_time_arg_val("users");
    constexpr uint32_t scratch_cb = get_named_compile_time_arg_val("scratch_cb");
    const auto priorities =
        TensorAccessor(ACCESSOR_ARGS(priority), COMMON_ARG(priority), priority::row_bytes);

    const uint32_t scratch = get_write_ptr(scratch_cb);
    noc_async_read(priorities.get_noc_addr(0), scratch, priority::row_bytes);
#if defined(OUTCOME_LOG)
    const bool keeps_log = get_absolute_logical_x() == COMMON_ARG(log_core_x) &&
                           get_absolute_logical_y() == COMMON_ARG(log_core_y);
    const uint32_t log_row = scratch + priority::row_bytes;
    uint64_t log_address = 0;
    if (keeps_log) {
        const auto log = TensorAccessor(ACCESSOR_ARGS(log), COMMON_ARG(log));
        log_address = log.get_noc_addr(COMMON_ARG(layer));
        noc_async_read(log_address, log_row, log_row_bytes);
    }
#endif
    noc_async_read_barrier();
    const volatile tt_l1_ptr uint32_t* own = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch);
    write_gate(priority::highest(own, users) == priority::yielded ? SGDC_GATE_CLOSED : SGDC_GATE_OPEN);

#if defined(OUTCOME_LOG)
    if (keeps_log) {
        count_outcomes(reinterpret_cast<volatile tt_l1_ptr uint32_t*>(log_row), own, users);
        noc_async_write(log_row, log_address, log_row_bytes);
        noc_async_write_barrier();
    }
#endif
#endif
}
