// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads this core's columns of the weight from the banks that hold them, a block of the inner dimension at a time. In a
// bank the tiles of a row lie side by side, so a row of columns is one packet, or one for each bank that it lies in. The
// next block is on its way while the one before arrives.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/blocks_in_turn.hpp"

namespace {

constexpr uint32_t cb_weight = get_named_compile_time_arg_val("cb_weight");
constexpr uint32_t blocks = get_named_compile_time_arg_val("blocks");
constexpr uint32_t inner = get_named_compile_time_arg_val("inner");
constexpr uint32_t columns = get_named_compile_time_arg_val("columns");
constexpr uint32_t bank_columns = get_named_compile_time_arg_val("bank_columns");
constexpr uint32_t packet_columns = get_named_compile_time_arg_val("packet_columns");
constexpr uint32_t slots = get_named_compile_time_arg_val("weight_slots");
constexpr uint32_t tile_bytes = get_tile_size(cb_weight);
constexpr uint32_t block_tiles = inner * columns;

// Asks for the rows from `row` on of columns `first` to `first` + `count` - 1.
void request(uint32_t weight, uint32_t first, uint32_t count, uint32_t row, uint32_t to) {
    uint32_t size = 0;
    for (uint32_t column = 0; column < count; column += size) {
        const uint32_t bank = (first + column) / bank_columns;
        const uint32_t at = (first + column) % bank_columns;
        size = count - column;
        size = size < bank_columns - at ? size : bank_columns - at;
        size = size < packet_columns ? size : packet_columns;
        const uint64_t base = get_noc_addr_from_bank_id<true>(bank, weight);
        noc_async_read_one_packet_set_state(base, size * tile_bytes);
        uint32_t from = static_cast<uint32_t>(base) + (row * bank_columns + at) * tile_bytes;
        uint32_t into = to + column * tile_bytes;
        for (uint32_t k = 0; k < inner; ++k) {
            noc_async_read_one_packet_with_state(from, into);
            from += bank_columns * tile_bytes;
            into += columns * tile_bytes;
        }
    }
}

}  // namespace

void kernel_main() {
    const uint32_t weight = COMMON_ARG(weight);
    const uint32_t first = RUNTIME_ARG(first);
    const uint32_t count = RUNTIME_ARG(count);
    if (count == 0) {
        return;
    }

    blocks_in_turn::read<cb_weight, blocks, block_tiles, slots>(
        [&](uint32_t block, uint32_t to) { request(weight, first, count, block * inner, to); });
}
