// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Hands the other half of the worker's pieces to the link core, reads the residual and the norm's weights, exchanges sums
// of squares with the other workers, and writes the rest of the norm, unless the link core has failed.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "not_finite.hpp"
#include "pieces.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"

namespace {

// Copies the first row of each tile of weights to the rows of all users, doubling them.
void repeat_rows(uint32_t weights) {
    const auto copy = [weights](uint32_t from, uint32_t to, uint32_t bytes) {
        for (uint32_t tile = 0; tile < config::tiles; ++tile) {
            const uint32_t at = weights + tile * config::tile_bytes;
            for (uint32_t face = 0; face < 2; ++face) {
                noc_async_read(
                    get_noc_addr(at + face * config::face_bytes + from), at + face * config::face_bytes + to,
                    bytes);
            }
        }
        noc_async_read_barrier();
    };
    constexpr uint32_t in_face = config::users < config::face_rows ? config::users : config::face_rows;
    for (uint32_t rows = 1; rows < in_face; rows *= 2) {
        copy(
            0, rows * config::row_bytes, (rows < in_face - rows ? rows : in_face - rows) * config::row_bytes);
    }
    if constexpr (config::users > config::face_rows) {
        copy(0, 2 * config::face_bytes, config::face_bytes);  // to the two faces below
    }
}

// Reads the weights' only row: of one user as all pieces lie, else into the first row of each tile.
template <typename Accessor>
void gather_weights(const Accessor& weights, uint32_t first, uint32_t to) {
    pieces::for_each_place(weights, first, pieces::all, [to](uint64_t from, uint32_t tile, uint32_t count) {
        noc_async_read_one_packet_set_state(from, config::row_bytes);
        uint32_t source = from;
        for (const uint32_t end = tile + count; tile < end; ++tile) {
            for (uint32_t face = 0; face < 2; ++face) {
                const uint32_t place = config::dense ? config::place(tile, face)
                                                     : tile * config::tile_bytes + face * config::face_bytes;
                noc_async_read_one_packet_with_state(source + face * config::face_bytes, to + place);
            }
            source += config::tile_bytes;
        }
    });
}

// Dense: sends this worker's sum of squares to all workers, to a row of its own, and waits for theirs. Such a row
// arrives as a whole; until then it is zeros, and its last word is none. cores: the workers' NoC addresses.
void exchange_dense_squares(uint32_t worker, const uint64_t (&cores)[config::workers]) {
    const uint32_t from = get_read_ptr(config::cb_own_square);
    const uint32_t rows = get_write_ptr(config::cb_all_squares);
    for (const uint64_t core : cores) {
        noc_async_write_one_packet(
            from, core + rows + worker * config::exact_row_bytes, config::exact_row_bytes);
    }
    for (uint32_t other = 0; other < config::workers; ++other) {
        const volatile tt_l1_ptr uint32_t* last = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(
            rows + (other + 1) * config::exact_row_bytes - sizeof(uint32_t));
        while (*last == 0) {
        }
    }
}

// Sends this worker's sums of squares to all workers, to a tile of its own, and waits for theirs. They fill a row of 16
// columns.
void exchange_squares(uint32_t worker, const uint64_t (&cores)[config::workers], uint32_t semaphore) {
    constexpr uint32_t upper = config::users < config::face_rows ? config::users : config::face_rows;
    const uint32_t from = get_read_ptr(config::cb_own_square);
    const uint32_t tile = get_write_ptr(config::cb_all_squares) + worker * config::exact_tile_bytes;
    for (const uint64_t core : cores) {
        noc_async_write(from, core + tile, upper * config::exact_row_bytes);
        if constexpr (config::users > config::face_rows) {
            constexpr uint32_t below = 2 * config::exact_face_bytes;
            noc_async_write(
                from + below, core + tile + below, (config::users - upper) * config::exact_row_bytes);
        }
    }
    noc_async_write_barrier();
    for (const uint64_t core : cores) {
        noc_semaphore_inc(core + get_semaphore(semaphore), 1);
    }
    noc_semaphore_wait_min(
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(semaphore)), config::workers);
}

}  // namespace

void kernel_main() {
    constexpr uint32_t decision_semaphore = get_named_compile_time_arg_val("decision_semaphore");
    constexpr uint32_t squares_semaphore = get_named_compile_time_arg_val("squares_semaphore");
    const uint32_t worker = RUNTIME_ARG(worker), first = worker * config::tiles;
    const auto normed = TensorAccessor(ACCESSOR_ARGS(normed), RUNTIME_ARG(normed), config::tile_bytes);

    if constexpr (config::movers > 1) {
        const auto partial = TensorAccessor(ACCESSOR_ARGS(partial), RUNTIME_ARG(partial), config::tile_bytes);
        pieces::hand_over(
            partial, worker, RUNTIME_ARG(rank), RUNTIME_ARG(link_x), RUNTIME_ARG(link_y), pieces::writers);
    }
    if constexpr (config::has_residual) {
        const auto residual =
            TensorAccessor(ACCESSOR_ARGS(residual), RUNTIME_ARG(residual), config::tile_bytes);
        cb_reserve_back(config::cb_residual, config::blocks);
        pieces::gather(residual, first, get_write_ptr(config::cb_residual));
        pieces::clear_tail(get_write_ptr(config::cb_residual));
    }
    if constexpr (config::has_norm) {
        const auto weights = TensorAccessor(ACCESSOR_ARGS(weights), RUNTIME_ARG(weights), config::tile_bytes);
        cb_reserve_back(config::cb_weights, config::blocks);
        gather_weights(weights, first, get_write_ptr(config::cb_weights));
    }
    noc_async_read_barrier();
    if constexpr (config::has_residual) {
        cb_push_back(config::cb_residual, config::blocks);
    }
    if constexpr (config::has_norm) {
        if constexpr (!config::dense) {
            repeat_rows(get_write_ptr(config::cb_weights));
        }
        cb_push_back(config::cb_weights, config::blocks);
        uint64_t cores[config::workers];
        for (uint32_t other = 0; other < config::workers; ++other) {
            const uint32_t index = RUNTIME_INDEX(worker_cores) + 2 * other;
            cores[other] = get_noc_addr(get_arg_val<uint32_t>(index), get_arg_val<uint32_t>(index + 1), 0);
        }
        cb_wait_front(config::cb_own_square, 1);
        not_finite::mend_squares(get_read_ptr(config::cb_own_square));
        if constexpr (config::dense) {
            exchange_dense_squares(worker, cores);
        } else {
            exchange_squares(worker, cores, squares_semaphore);
        }
        cb_reserve_back(config::cb_all_squares, config::square_pages);
        cb_push_back(config::cb_all_squares, config::square_pages);
        const uint32_t squares = get_read_ptr(config::cb_all_squares);
        const bool finite = not_finite::all_finite(squares);  // while the compute kernel works
        cb_wait_front(config::cb_normed, config::blocks);
        const volatile tt_l1_ptr uint32_t* decision =
            reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(decision_semaphore));
        if (!finite) {
            not_finite::mend_norm(squares, get_read_ptr(config::cb_normed));
        }
        if (*decision < config::failed) {
            pieces::scatter(
                normed, first, get_read_ptr(config::cb_normed), finite ? pieces::rest_of_norm : pieces::all);
        }
    }
    pieces::finish();
}
