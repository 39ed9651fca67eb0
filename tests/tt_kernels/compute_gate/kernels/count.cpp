// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Adds 1 to three words of L1, one from each RISC of a compute kernel.

#include <cstdint>

#include "api/compute/common.h"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    UNPACK((*reinterpret_cast<volatile uint32_t*>(COMMON_ARG(unpack)) += 1));
    MATH((*reinterpret_cast<volatile uint32_t*>(COMMON_ARG(math)) += 1));
    PACK((*reinterpret_cast<volatile uint32_t*>(COMMON_ARG(pack)) += 1));
}
