// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A share of an exchange's packed rows, on both data movement cores of a helper: packs it and hands it to the exchange
// core, and if that has received rows, puts them into place.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "exchange.hpp"
#include "rows.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t rows_cb = get_named_compile_time_arg_val("rows_cb");
    constexpr uint32_t decision_semaphore = get_named_compile_time_arg_val("decision_semaphore");
    constexpr uint32_t packed_semaphore = get_named_compile_time_arg_val("packed_semaphore");
    constexpr uint32_t packet_bytes = get_named_compile_time_arg_val("packet_bytes");
    const uint32_t share = RUNTIME_ARG(share), x = RUNTIME_ARG(exchange_x), y = RUNTIME_ARG(exchange_y);

    const uint32_t base = get_write_ptr(rows_cb);  // the same on all cores
    uint32_t at = base;
    FOR_EACH_TENSOR(GATHER_ROWS)
    noc_async_read_barrier();
    at = base;
    FOR_EACH_TENSOR(HAND_OVER_ROWS)
    noc_async_write_barrier();
    noc_semaphore_inc(get_noc_addr(x, y, get_semaphore(packed_semaphore)), 1);
    volatile tt_l1_ptr uint32_t* decision = exchange::semaphore(decision_semaphore);
    noc_semaphore_wait_min(decision, exchange::end);
    if (*decision == exchange::spread) {
        PUT_ROWS_INTO_PLACE
    }
    noc_async_atomic_barrier();
}
