// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Writes the output tiles.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

void kernel_main() {
    constexpr uint32_t columns = get_compile_time_arg_val(0);
    constexpr auto output_args = TensorAccessorArgs<1>();
    const auto output = TensorAccessor(output_args, get_arg_val<uint32_t>(0));
    for (uint32_t column = 0; column < columns; ++column) {
        cb_wait_front(2, 1);
        noc_async_write(get_read_ptr(2), output.get_noc_addr(column), get_tile_size(2));
        noc_async_write_barrier();
        cb_pop_front(2, 1);
    }
}
