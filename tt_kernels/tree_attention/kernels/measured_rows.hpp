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

// Clears the rows of query tile `tile` at `address` that do not count.
inline __attribute__((noinline)) void clear_uncounted(
    const interval_tiles::Times& times, const jobs::Job& job, uint32_t tile, uint32_t address) {
    const uint32_t rows = job.rows_of(tile), end = (rows + 3) / 4 * 4;  // of the bands that are measured
    const uint64_t zeros = get_noc_addr(MEM_ZEROS_BASE);
    uint32_t row = times.all_count() ? rows : 0;
    uint32_t node = (job.first_row + tile * 32 + row) % config::nodes();
    for (; row < end; ++row) {
        if (row >= rows || !times.counts(node)) {
            tile_rows::for_each_piece(row, row + 1, [&](uint32_t offset, uint32_t bytes) {
                for (uint32_t column = 0; column < head_tiles; ++column) {
                    noc_async_read(zeros, address + column * tile_rows::tile_bytes + offset, bytes);
                }
            });
        }
        node = node + 1 == config::nodes() ? 0 : node + 1;
    }
}

// Hands pairs of query tiles to compute, whose exact results compute has packed beside the output: into the same slot
// of cb_measured_exact that the guess has in cb_measured_guess.
class Pairs {
public:
    Pairs() :
        guess_(get_write_ptr(config::cb_measured_guess)), exact_(get_write_ptr(config::cb_measured_exact)) {}

    // Reads the guess's rows of query tile `tile` from DRAM; `ahead` tiles are to be handed over before it.
    template <typename Accessor>
    __attribute__((noinline)) void prepare(
        const Accessor& guess,
        const interval_tiles::Times& times,
        const jobs::Job& job,
        uint32_t tile,
        uint32_t ahead) const {
        cb_reserve_back(config::cb_measured_guess, (ahead + 1) * head_tiles);
        const uint32_t to = guess_ + (slot_ + ahead) % slots * bytes;
        packed_rows::move(packed_rows::Move::from_tensor, guess, job, tile, to);
        noc_async_read_barrier();
        clear_uncounted(times, job, tile, to);
    }

    // Once compute has packed the exact result of `tile`.
    void hand_over(const interval_tiles::Times& times, const jobs::Job& job, uint32_t tile) {
        clear_uncounted(times, job, tile, exact_ + slot_ * bytes);
        noc_async_read_barrier();
        cb_push_back(config::cb_measured_guess, head_tiles);
        slot_ = (slot_ + 1) % slots;
    }

private:
    static constexpr uint32_t slots = 2, bytes = head_tiles * tile_rows::tile_bytes;
    uint32_t guess_, exact_;  // buffers
    uint32_t slot_ = 0;
};

// Adds what compute measured of one query tile.
inline void add_measured(job_sums::Sums& sums) {
    cb_wait_front(config::cb_norms, 1);
    job_sums::add(
        sums, reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_norms)),
        {guess_decision::distance_element, guess_decision::norm_element, guess_decision::bound_element});
    cb_pop_front(config::cb_norms, 1);
}

}  // namespace measured_rows
