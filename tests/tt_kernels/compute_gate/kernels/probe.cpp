// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Copies some bytes of this core's L1 to a row of the output.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    const auto output = TensorAccessor(ACCESSOR_ARGS(output), COMMON_ARG(output));
    noc_async_write(COMMON_ARG(address), output.get_noc_addr(COMMON_ARG(row)), COMMON_ARG(bytes));
    noc_async_write_barrier();
}
