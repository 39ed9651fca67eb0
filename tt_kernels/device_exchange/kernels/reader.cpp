// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Packs its share of the rows of tensors that have few, whatever will be decided, and waits for the helpers'; then, if
// this rank sends, reads the other tensors into the circular buffer, piece by piece, or if it has received packed rows,
// puts its share of them into its tensors.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "exchange.hpp"
#include "rows.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"

namespace {

template <uint32_t pieces_cb, uint32_t pages, uint32_t used_bytes, uint32_t piece_bytes, typename Accessor>
void read_tensor(const Accessor& tensor) {
    constexpr uint32_t stride = exchange::stride(used_bytes, piece_bytes);
    constexpr uint32_t pieces = (used_bytes + stride - 1) / stride;
    uint32_t page = 0, piece = 0;
    for (uint32_t left = pages * pieces; left > 0;) {
        const uint32_t batch = left < exchange::batch ? left : exchange::batch;
        cb_reserve_back(pieces_cb, exchange::batch);
        uint32_t to = get_write_ptr(pieces_cb);
        for (uint32_t i = 0; i < batch; ++i) {
            const uint32_t bytes = exchange::piece_size(used_bytes, stride, piece);
            noc_async_read(tensor.get_noc_addr(page, piece * stride), to, bytes);
            to += stride;
            if (++piece == pieces) {
                piece = 0;
                ++page;
            }
        }
        noc_async_read_barrier();
        cb_push_back(pieces_cb, exchange::batch);
        left -= batch;
    }
}

}  // namespace

#define READ_TENSOR(name)                                          \
    read_tensor<                                                   \
        pieces_cb, get_named_compile_time_arg_val("pages_" #name), \
        get_named_compile_time_arg_val("used_bytes_" #name), piece_bytes>(OWN_TENSOR(name));

void kernel_main() {
    constexpr uint32_t pieces_cb = get_named_compile_time_arg_val("pieces_cb");
    constexpr uint32_t rows_cb = get_named_compile_time_arg_val("rows_cb");
    constexpr uint32_t decision_semaphore = get_named_compile_time_arg_val("decision_semaphore");
    constexpr uint32_t packed_semaphore = get_named_compile_time_arg_val("packed_semaphore");
    constexpr uint32_t piece_bytes = get_named_compile_time_arg_val("piece_bytes");
    constexpr uint32_t packet_bytes = get_named_compile_time_arg_val("packet_bytes");
    constexpr bool packs = get_named_compile_time_arg_val("packed_bytes") > 0;

    constexpr uint32_t share = 0;
    const uint32_t base = packs ? get_write_ptr(rows_cb) : 0;
    if constexpr (packs) {
        cb_reserve_back(rows_cb, 1);
        uint32_t at = base;
        FOR_EACH_TENSOR(GATHER_ROWS)
        noc_async_read_barrier();
        noc_semaphore_wait_min(exchange::semaphore(packed_semaphore), rows::shares - 1);
        cb_push_back(rows_cb, 1);
    }
    // The writer always decides: its own waits are bounded.
    volatile tt_l1_ptr uint32_t* decision = exchange::semaphore(decision_semaphore);
    noc_semaphore_wait_min(decision, exchange::end);
    if (*decision == exchange::send) {
        FOR_EACH_TENSOR(READ_TENSOR)
    } else if (packs && *decision == exchange::spread) {
        PUT_ROWS_INTO_PLACE
    }
}
