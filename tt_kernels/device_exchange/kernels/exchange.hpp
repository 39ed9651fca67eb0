// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of the exchange agree on.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

#ifndef SGDC_UNGATED
#error "the exchange must be compiled with SGDC_UNGATED, or a rank that skips would leave its peer waiting"
#endif

namespace exchange {

// The writer's decision, in a semaphore of each core that starts at 0.
constexpr uint32_t end = 1;
constexpr uint32_t send = 2;
constexpr uint32_t spread = 3;  // the rows that were received

inline volatile tt_l1_ptr uint32_t* semaphore(uint32_t id) {
    return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(id));
}

// Pieces read before one barrier; the buffer holds two batches. A tensor's last batch takes the space of a whole one,
// so that none wraps around the buffer's end.
constexpr uint32_t batch = 8;
constexpr uint32_t pieces_in_buffer = 2 * batch;

// The first `used_bytes` of a page alone are exchanged, in pieces that follow each other in the buffer.
constexpr uint32_t stride(uint32_t used_bytes, uint32_t piece_bytes) {
    return used_bytes < piece_bytes ? used_bytes : piece_bytes;
}

constexpr uint32_t piece_size(uint32_t used_bytes, uint32_t stride, uint32_t piece) {
    const uint32_t left = used_bytes - piece * stride;
    return left < stride ? left : stride;
}

}  // namespace exchange

// Calls the macro `use` with the name of each tensor, and what it may pass on: this rank's tensor of a name; the
// template arguments of its packed rows.
#define FOR_EACH_TENSOR(use) use(tensor_0) use(tensor_1) use(tensor_2) use(tensor_3)
#define OWN_TENSOR(name) \
    TensorAccessor(      \
        ACCESSOR_ARGS(name), RUNTIME_ARG(name), get_named_compile_time_arg_val("page_bytes_" #name))
#define ROWS_OF(name) \
    get_named_compile_time_arg_val("packed_pages_" #name), get_named_compile_time_arg_val("row_bytes_" #name)
