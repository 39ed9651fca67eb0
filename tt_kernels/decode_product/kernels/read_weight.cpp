// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads the columns of the bank beside this core, a block of the inner dimension at a time: they lie side by side, row
// after row. The next block is on its way while the one before arrives.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/blocks_in_turn.hpp"

void kernel_main() {
    constexpr uint32_t cb_weight = get_named_compile_time_arg_val("cb_weight");
    constexpr uint32_t blocks = get_named_compile_time_arg_val("blocks");
    constexpr uint32_t slots = get_named_compile_time_arg_val("slots");
    constexpr uint32_t block_tiles =
        get_named_compile_time_arg_val("inner") * get_named_compile_time_arg_val("columns");
    constexpr uint32_t block_bytes = block_tiles * get_tile_size(cb_weight);

    uint64_t from = get_noc_addr_from_bank_id<true>(RUNTIME_ARG(bank), COMMON_ARG(weight));
    blocks_in_turn::read<cb_weight, blocks, block_tiles, slots>([&](uint32_t, uint32_t to) {
        noc_async_read(from, to, block_bytes);
        from += block_bytes;
    });
}
