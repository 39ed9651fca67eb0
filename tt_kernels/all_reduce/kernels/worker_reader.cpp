// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Hands the worker's pieces of this chip's partial sums to the link core, and when that has those of the other chips,
// puts all of them in chip order before the compute kernel; then writes the sum, unless the link core has failed.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "not_finite.hpp"
#include "pieces.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t packed_semaphore = get_named_compile_time_arg_val("packed_semaphore");
    constexpr uint32_t decision_semaphore = get_named_compile_time_arg_val("decision_semaphore");
    const uint32_t worker = RUNTIME_ARG(worker), rank = RUNTIME_ARG(rank);
    const uint32_t x = RUNTIME_ARG(link_x), y = RUNTIME_ARG(link_y);
    const auto partial = TensorAccessor(ACCESSOR_ARGS(partial), RUNTIME_ARG(partial), config::tile_bytes);
    const auto sum = TensorAccessor(ACCESSOR_ARGS(sum), RUNTIME_ARG(sum), config::tile_bytes);

    const uint32_t parts = get_write_ptr(config::cb_parts);
    const uint32_t own = parts + rank * config::block_bytes;
    pieces::gather(partial, worker * config::tiles, own);
    if constexpr (config::dense && config::has_norm) {
        // The rows of the workers' sums of squares, before any can send its own.
        tile_masks::clear(get_write_ptr(config::cb_all_squares), config::exact_face_bytes);
    }
    noc_async_read_barrier();
    const uint32_t packed =
        get_write_ptr(config::cb_packed) + worker * config::chunk_bytes;  // as on the link core
    pieces::for_each_run([&](uint32_t from, uint32_t to, uint32_t bytes) {
        noc_async_write(own + from, get_noc_addr(x, y, packed + to), bytes);
    });
    noc_async_write_barrier();
    noc_semaphore_inc(get_noc_addr(x, y, get_semaphore(packed_semaphore)), 1);

    volatile tt_l1_ptr uint32_t* decision =
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(decision_semaphore));
    noc_semaphore_wait_min(
        decision, config::received);  // the link core always decides: its waits are bounded
    if (*decision != config::failed) {
        const uint32_t slot = *decision - config::received;
        const uint32_t landing = RUNTIME_ARG(landing) + slot * config::chips * config::chunk_bytes;
        for (uint32_t chip = 0; chip < config::chips; ++chip) {
            if (chip == rank) {
                continue;
            }
            const uint64_t from = get_noc_addr(landing + chip * config::chunk_bytes);
            const uint32_t to = parts + chip * config::block_bytes;
            pieces::for_each_run([&](uint32_t place, uint32_t in_chunk, uint32_t bytes) {
                noc_async_read(from + in_chunk, to + place, bytes);
            });
            if constexpr (config::tail_bytes > 0) {
                tile_masks::clear(to + config::chunk_bytes, config::tail_bytes);
            }
        }
        noc_async_read_barrier();
    }
    cb_reserve_back(config::cb_parts, config::chips * config::blocks);
    cb_push_back(config::cb_parts, config::chips * config::blocks);
    cb_wait_front(config::cb_sum, config::blocks);
    cb_wait_front(config::cb_own_square, 1);
    not_finite::mend_sum(get_read_ptr(config::cb_own_square), get_read_ptr(config::cb_sum));
    if (*decision != config::failed) {
        pieces::scatter(sum, worker * config::tiles, get_read_ptr(config::cb_sum));
    }
    noc_async_write_barrier();
    noc_async_atomic_barrier();
}
