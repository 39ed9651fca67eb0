// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Writes the output tiles.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t columns = get_named_compile_time_arg_val("columns");
    const auto output = TensorAccessor(ACCESSOR_ARGS(output), RUNTIME_ARG(output));
    for (uint32_t column = 0; column < columns; ++column) {
        cb_wait_front(2, 1);
        noc_async_write(get_read_ptr(2), output.get_noc_addr(column), get_tile_size(2));
        noc_async_write_barrier();
        cb_pop_front(2, 1);
    }
}
