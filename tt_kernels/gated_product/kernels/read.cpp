// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Brings the tiles of gate and up of this core's tiles of the product, in groups: all of gate, then all of up.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t cb_rows = get_named_compile_time_arg_val("cb_rows");
    constexpr uint32_t pairs = get_named_compile_time_arg_val("pairs");
    constexpr uint32_t block = get_named_compile_time_arg_val("block");
    constexpr uint32_t tile_bytes = get_tile_size(cb_rows);
    const auto rows = TensorAccessor(ACCESSOR_ARGS(rows), COMMON_ARG(rows), tile_bytes);
    const uint32_t end = RUNTIME_ARG(first) + RUNTIME_ARG(tiles);

    for (uint32_t tile = RUNTIME_ARG(first); tile < end;) {
        const uint32_t count = end - tile < pairs ? end - tile : pairs;
        cb_reserve_back(cb_rows, 2 * count);
        const uint32_t to = get_write_ptr(cb_rows);
        for (uint32_t i = 0; i < count; ++i, ++tile) {
            const uint32_t gate = tile + tile / block * block;  // a block of up follows each of gate
            noc_async_read(rows.get_noc_addr(gate), to + i * tile_bytes, tile_bytes);
            noc_async_read(rows.get_noc_addr(gate + block), to + (count + i) * tile_bytes, tile_bytes);
        }
        noc_async_read_barrier();
        cb_push_back(cb_rows, 2 * count);
    }
}
