// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Tells the firmware of this core where to note the programs that follow (timeline.py); with no capacity, nowhere.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

void kernel_main() {
    volatile uint32_t* control = reinterpret_cast<volatile uint32_t*>(MEM_LLK_DEBUG_BASE + 640);
    const uint32_t address = get_common_arg_val<uint32_t>(0);
    const uint32_t capacity = get_common_arg_val<uint32_t>(1);
    const uint32_t magic = get_common_arg_val<uint32_t>(2);
    control[0] = 0;
    control[1] = address;
    control[2] = capacity;
    control[3] = 0;
    control[0] = capacity > 0 ? magic + address : 0;
}
