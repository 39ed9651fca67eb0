// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The writer's part of the measure of a guess: a reducer's tiles of guess and exact result without the rows that do not
// count, the sums over its jobs' rows, and on the first reducer the decision, for each user over all of its jobs.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "interval_tiles.hpp"
#include "jobs.hpp"
#include "packed_rows.hpp"
#include "tt_kernels/common/kernels/guess_decision.hpp"
#include "tt_kernels/common/kernels/positive_sum.hpp"
#include "tt_kernels/common/kernels/priority.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace measured_rows {

constexpr uint32_t head_tiles = config::head_tiles;

inline void wait_for(uint32_t semaphore, uint32_t count) {
    noc_semaphore_wait_min(reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(semaphore)), count);
}

// Sums of a job: the squared distance, the squared norm and that times threshold^2, the bits of float32.
enum Kind : uint32_t { distance_sq, norm_sq, bound, kinds };
struct Sums {
    uint32_t of[kinds];
};
constexpr uint32_t sums_bytes = 16;  // the room of a job's, as aligned as NoC writes have to be

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

// Adds the words at `numbers`, of each kind the one at its place in `at`.
inline __attribute__((noinline)) void add(
    Sums& sums, const volatile tt_l1_ptr uint32_t* numbers, const uint32_t (&at)[kinds]) {
    for (uint32_t kind = 0; kind < kinds; ++kind) {
        sums.of[kind] = positive_sum::add(sums.of[kind], numbers[at[kind]]);
    }
}

// Adds what compute measured of one query tile.
inline void add_measured(Sums& sums) {
    cb_wait_front(config::cb_norms, 1);
    add(sums, reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_norms)),
        {guess_decision::distance_element, guess_decision::norm_element, guess_decision::bound_element});
    cb_pop_front(config::cb_norms, 1);
}

// Sends a job's sums to the core that decides, at x and y. They leave from the place they have there: the buffer is at
// the same address on all cores, and a core's own jobs are no other's.
inline void send(const Sums& sums, uint32_t job, uint32_t x, uint32_t y) {
    const uint32_t at = get_write_ptr(config::cb_sums) + job * sums_bytes;
    volatile tt_l1_ptr uint32_t* words = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(at);
    for (uint32_t kind = 0; kind < kinds; ++kind) {
        words[kind] = sums.of[kind];
    }
    (void)words[kinds - 1];  // read back: all have reached L1
    noc_async_write(at, get_noc_addr(x, y, at), sums_bytes);
    noc_async_write_barrier();
    noc_semaphore_inc(get_noc_addr(x, y, get_semaphore(config::sem_measured)), 1);
}

// Waits for the sums of all jobs, adds them up in their order and writes distances, norms and priorities (unless their
// address is 0). A guess is given away if it is accepted. Uses cb_intervals as scratch.
template <typename Norm, typename Priority>
inline void decide(
    const volatile tt_l1_ptr uint32_t* prefixes,
    const Norm& distances,
    const Norm& norms,
    const Priority& priorities,
    bool with_priorities) {
    const uint32_t per_user = config::kv_heads() * config::passes();
    uint32_t active = 0;
    for (uint32_t user = 0; user < config::users(); ++user) {
        active += prefixes[user] == jobs::skipped ? 0 : 1;
    }
    wait_for(config::sem_measured, active * per_user);
    const volatile tt_l1_ptr uint32_t* landed =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_write_ptr(config::cb_sums));
    const uint32_t scratch = get_write_ptr(config::cb_intervals);
    const auto line = [&](uint32_t index) {
        return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch + index * priority::row_bytes);
    };
    for (uint32_t user = 0; user < priority::max_users; ++user) {
        const bool skipped = user >= config::users() || prefixes[user] == jobs::skipped;
        Sums sums{};
        for (uint32_t job = user * per_user; !skipped && job < (user + 1) * per_user; ++job) {
            add(sums, landed + job * sums_bytes / sizeof(uint32_t), {distance_sq, norm_sq, bound});
        }
        const bool bypassed = !skipped && jobs::span_of(prefixes[user]).bypassed();
        line(0)[user] = sums.of[distance_sq];
        line(1)[user] = sums.of[norm_sq];
        const bool accepted = guess_decision::passes(line(0)[user], sums.of[bound]);
        line(2)[user] = guess_decision::priority_of(skipped, bypassed, accepted);
    }
    (void)line(2)[priority::max_users - 1];
    noc_async_write<priority::row_bytes>(
        scratch, distances.get_noc_addr(0), config::users() * sizeof(uint32_t));
    noc_async_write<priority::row_bytes>(
        scratch + priority::row_bytes, norms.get_noc_addr(0), config::users() * sizeof(uint32_t));
    if (with_priorities) {
        noc_async_write<priority::row_bytes>(
            scratch + 2 * priority::row_bytes, priorities.get_noc_addr(0), priority::row_bytes);
    }
    noc_async_write_barrier();
}

}  // namespace measured_rows
