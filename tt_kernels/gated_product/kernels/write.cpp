// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Writes this core's tiles of the product, which follow each other.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t cb_product = get_named_compile_time_arg_val("cb_product");
    constexpr uint32_t pairs = get_named_compile_time_arg_val("pairs");
    constexpr uint32_t tile_bytes = get_tile_size(cb_product);
    const auto product = TensorAccessor(ACCESSOR_ARGS(product), COMMON_ARG(product), tile_bytes);
    const uint32_t end = RUNTIME_ARG(first) + RUNTIME_ARG(tiles);

    for (uint32_t tile = RUNTIME_ARG(first); tile < end;) {
        const uint32_t count = end - tile < pairs ? end - tile : pairs;
        cb_wait_front(cb_product, count);
        const uint32_t from = get_read_ptr(cb_product);
        for (uint32_t i = 0; i < count; ++i, ++tile) {
            noc_async_write(from + i * tile_bytes, product.get_noc_addr(tile), tile_bytes);
        }
        noc_async_write_barrier();
        cb_pop_front(cb_product, count);
    }
}
