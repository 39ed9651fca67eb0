// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The writer's part of the measure of a guess: a reducer's tiles of guess and exact result without the rows that do not
// count, and the sums over its jobs' rows.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "interval_tiles.hpp"
#include "job_sums.hpp"
#include "jobs.hpp"
#include "packed_rows.hpp"
#include "tt_kernels/common/kernels/guess_decision.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace measured_rows {

constexpr uint32_t head_tiles = config::head_tiles;

// Starts to read the guess's rows of query tile `tile`, which are in DRAM.
template <typename Accessor>
inline void read_guess(const Accessor& guess, const jobs::Job& job, uint32_t tile) {
    cb_reserve_back(config::cb_measured_guess, head_tiles);
    packed_rows::move(
        packed_rows::Move::from_tensor, guess, job, tile, get_write_ptr(config::cb_measured_guess));
}

// Copies the exact result at `from`, clears what does not count of both, and hands them to compute.
inline void push(const interval_tiles::Times& times, const jobs::Job& job, uint32_t tile, uint32_t from) {
    cb_reserve_back(config::cb_measured_exact, head_tiles);
    const uint32_t to[] = {
        get_write_ptr(config::cb_measured_guess), get_write_ptr(config::cb_measured_exact)};
    noc_async_read(get_noc_addr(from), to[1], head_tiles * tile_rows::tile_bytes);
    noc_async_read_barrier();
    const uint32_t rows = job.rows_of(tile), end = (rows + 3) / 4 * 4;  // of the bands that are measured
    const uint64_t zeros = get_noc_addr(MEM_ZEROS_BASE);
    uint32_t node = (job.first_row + tile * 32) % config::nodes();
    for (uint32_t row = 0; row < end; ++row) {
        if (row >= rows || !times.counts(node)) {
            tile_rows::for_each_piece(row, row + 1, [&](uint32_t offset, uint32_t bytes) {
                for (uint32_t column = 0; column < head_tiles; ++column) {
                    for (uint32_t start : to) {
                        noc_async_read(zeros, start + column * tile_rows::tile_bytes + offset, bytes);
                    }
                }
            });
        }
        node = node + 1 == config::nodes() ? 0 : node + 1;
    }
    noc_async_read_barrier();
    cb_push_back(config::cb_measured_guess, head_tiles);
    cb_push_back(config::cb_measured_exact, head_tiles);
}

// Adds what compute measured of one query tile.
inline void add_measured(job_sums::Sums& sums) {
    cb_wait_front(config::cb_norms, 1);
    job_sums::add(
        sums, reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_norms)),
        {guess_decision::distance_element, guess_decision::norm_element, guess_decision::bound_element});
    cb_pop_front(config::cb_norms, 1);
}

}  // namespace measured_rows
