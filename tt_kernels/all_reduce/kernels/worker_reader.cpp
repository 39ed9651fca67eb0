// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Hands the first half of the worker's pieces of this chip's partial sums to the link core, fetches those of the other
// chips as they come, and puts all of them in chip order before the compute kernel; then writes the sum and a third of the norm,
// unless the link core has failed.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "not_finite.hpp"
#include "pieces.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"

void kernel_main() {
    constexpr uint32_t decision_semaphore = get_named_compile_time_arg_val("decision_semaphore");
    const uint32_t worker = RUNTIME_ARG(worker), rank = RUNTIME_ARG(rank), first = worker * config::tiles;
    const auto partial = TensorAccessor(ACCESSOR_ARGS(partial), RUNTIME_ARG(partial), config::tile_bytes);
    const auto sum = TensorAccessor(ACCESSOR_ARGS(sum), RUNTIME_ARG(sum), config::tile_bytes);

    const uint32_t parts = get_write_ptr(config::cb_parts);
    for (uint32_t chip = 0; chip < config::chips; ++chip) {
        pieces::clear_tail(parts + chip * config::block_bytes);
    }
    if constexpr (config::dense && config::has_norm) {
        // The rows of the workers' sums of squares, before any can send its own.
        tile_masks::clear(get_write_ptr(config::cb_all_squares), config::exact_face_bytes);
    }
    pieces::hand_over(partial, worker, rank, RUNTIME_ARG(link_x), RUNTIME_ARG(link_y), pieces::readers);

    volatile tt_l1_ptr uint32_t* decision =
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(decision_semaphore));
    uint32_t due = 0;
    const bool fine = config::for_each_other(rank, [&](uint32_t chip) {
        due += config::received;
        noc_semaphore_wait_min(decision, due);  // the link core always decides: its waits are bounded
        const uint32_t told = *decision, slot = told & config::odd_slot;
        if (told >= config::failed) {
            return false;
        }
        const uint32_t landing = RUNTIME_ARG(landing) +
                                 (slot * config::chips + chip) * config::landing_bytes +
                                 worker % config::together * config::chunk_bytes;
        const uint64_t from = get_noc_addr(RUNTIME_ARG(landing_x), RUNTIME_ARG(landing_y), landing);
        const uint32_t to = parts + chip * config::block_bytes;
        pieces::for_each_run(pieces::all, [&](uint32_t place, uint32_t in_chunk, uint32_t bytes) {
            noc_async_read(from + in_chunk, to + place, bytes);
        });
        return true;
    });
    noc_async_read_barrier();
    cb_reserve_back(config::cb_parts, config::chips * config::blocks);
    cb_push_back(config::cb_parts, config::chips * config::blocks);
    cb_wait_front(config::cb_sum, config::blocks);
    cb_wait_front(config::cb_own_square, 1);
    not_finite::mend_sum(get_read_ptr(config::cb_own_square), get_read_ptr(config::cb_sum));
    if (fine) {
        pieces::scatter(sum, first, get_read_ptr(config::cb_sum));
    }
    if constexpr (config::has_norm) {
        const auto normed = TensorAccessor(ACCESSOR_ARGS(normed), RUNTIME_ARG(normed), config::tile_bytes);
        cb_wait_front(config::cb_all_squares, config::square_pages);
        const bool finite = not_finite::all_finite(get_read_ptr(config::cb_all_squares));
        cb_wait_front(config::cb_normed, config::blocks);
        if (fine && finite) {  // else the writer mends the norm, and writes all of it
            pieces::scatter(normed, first, get_read_ptr(config::cb_normed), pieces::readers_norm);
        }
    }
    pieces::finish();
}
