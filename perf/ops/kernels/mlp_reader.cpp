// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Streams a row of activation tiles and the weight tiles of one output column after another.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t depth = get_named_compile_time_arg_val("depth");
    constexpr uint32_t columns = get_named_compile_time_arg_val("columns");
    constexpr uint32_t batch = get_named_compile_time_arg_val("batch");
    const auto activations = TensorAccessor(ACCESSOR_ARGS(activations), RUNTIME_ARG(activations));
    const auto weights = TensorAccessor(ACCESSOR_ARGS(weights), RUNTIME_ARG(weights));
    constexpr uint32_t tile_bytes = get_tile_size(0);

    for (uint32_t column = 0; column < columns; ++column) {
        for (uint32_t k = 0; k < depth; k += batch) {
            cb_reserve_back(0, batch);
            cb_reserve_back(1, batch);
            for (uint32_t i = 0; i < batch; ++i) {
                const uint32_t row = k + i, offset = i * tile_bytes;
                noc_async_read(activations.get_noc_addr(row), get_write_ptr(0) + offset, tile_bytes);
                const uint64_t weight = weights.get_noc_addr(row * columns + column);
                noc_async_read(weight, get_write_ptr(1) + offset, tile_bytes);
            }
            noc_async_read_barrier();
            cb_push_back(0, batch);
            cb_push_back(1, batch);
        }
    }
}
