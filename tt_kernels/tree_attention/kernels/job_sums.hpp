// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The sums by which a guess is decided on, as reducers send them to the deciding core, a place for each job.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "tt_kernels/common/kernels/positive_sum.hpp"

namespace job_sums {

// The squared distance, the squared norm and that times threshold^2, the bits of float32.
constexpr uint32_t kinds = 3;
struct Sums {
    uint32_t of[kinds];
};
constexpr uint32_t bytes = 16;  // the room of a job's, as aligned as NoC writes have to be

inline void wait_for(uint32_t semaphore, uint32_t count) {
    noc_semaphore_wait_min(reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(semaphore)), count);
}

// Adds the words at `numbers`, of each kind the one at its place in `at`.
inline __attribute__((noinline)) void add(
    Sums& sums, const volatile tt_l1_ptr uint32_t* numbers, const uint32_t (&at)[kinds]) {
    for (uint32_t kind = 0; kind < kinds; ++kind) {
        sums.of[kind] = positive_sum::add(sums.of[kind], numbers[at[kind]]);
    }
}

// Sends a job's sums to the deciding core, at x and y. They leave from the place they have there: the buffer is at the
// same address on all cores, and a core's own jobs are no other's.
inline void send(const Sums& sums, uint32_t job, uint32_t x, uint32_t y) {
    const uint32_t at = get_write_ptr(config::cb_sums) + job * bytes;
    volatile tt_l1_ptr uint32_t* words = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(at);
    for (uint32_t kind = 0; kind < kinds; ++kind) {
        words[kind] = sums.of[kind];
    }
    (void)words[kinds - 1];  // read back: all have reached L1
    noc_async_write(at, get_noc_addr(x, y, at), bytes);
    noc_async_write_barrier();
    noc_semaphore_inc(get_noc_addr(x, y, get_semaphore(config::sem_measured)), 1);
}

}  // namespace job_sums
