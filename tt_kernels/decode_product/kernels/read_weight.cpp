// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads the columns of the bank beside this core, a block of the inner dimension at a time: they lie side by side, row
// after row. The next block is on its way while the one before arrives.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t cb_weight = get_named_compile_time_arg_val("cb_weight");
    constexpr uint32_t blocks = get_named_compile_time_arg_val("blocks");
    constexpr uint32_t slots = get_named_compile_time_arg_val("slots");
    constexpr uint32_t block_tiles =
        get_named_compile_time_arg_val("inner") * get_named_compile_time_arg_val("columns");
    constexpr uint32_t block_bytes = block_tiles * get_tile_size(cb_weight);
    constexpr uint32_t ids = 2;  // of transactions: blocks on their way

    uint64_t from = get_noc_addr_from_bank_id<true>(RUNTIME_ARG(bank), COMMON_ARG(weight));
    const uint32_t buffer = get_write_ptr(cb_weight);
    for (uint32_t block = 0, slot = 0; block < blocks; ++block, slot = slot + 1 == slots ? 0 : slot + 1) {
        cb_reserve_back(cb_weight, (block == 0 ? 1 : 2) * block_tiles);
        noc_async_read_set_trid(1 + block % ids);
        noc_async_read(from, buffer + slot * block_bytes, block_bytes);
        from += block_bytes;
        if (block > 0) {
            noc_async_read_barrier_with_trid(1 + (block - 1) % ids);
            cb_push_back(cb_weight, block_tiles);
        }
    }
    noc_async_read_barrier_with_trid(1 + (blocks - 1) % ids);
    cb_push_back(cb_weight, block_tiles);
    noc_async_read_set_trid(0);
}
