// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The deciding core (BRISC): adds up the sums of all jobs (measured_rows.hpp), each user's in their order, accepts or
// rejects each user's guess and writes distances, norms and this rank's priorities. A guess that did not reach the peer
// is not accepted.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "control.hpp"
#include "fetch_control.hpp"
#include "job_sums.hpp"
#include "jobs.hpp"
#include "tt_kernels/common/kernels/guess_verdict.hpp"

void kernel_main() {
    using namespace guess_verdict;
    const uint32_t page = get_write_ptr(config::cb_control);
    control::fetch(page, ACCESSOR_ARGS(prefix), ACCESSOR_ARGS(gathered));
    const volatile tt_l1_ptr uint32_t* prefixes = reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(page);
    if (prefixes[control::receiving]) {
        return;
    }
    Verdict verdict;
    constexpr auto norm_args = ACCESSOR_ARGS(norm);
    const uint32_t priority_address = RUNTIME_ARG(priority);  // 0: there are none to update
    const uint64_t distances = TensorAccessor(norm_args, RUNTIME_ARG(distance_sq)).get_noc_addr(0);
    const uint64_t norms = TensorAccessor(norm_args, RUNTIME_ARG(norm_sq)).get_noc_addr(0);
    const uint64_t priorities = TensorAccessor(ACCESSOR_ARGS(priority), priority_address).get_noc_addr(0);
    const uint32_t users = config::users(), per_user = config::kv_heads() * config::passes();

    // All that does not depend on the numbers is done before they are there: the lines are those of guesses that nobody
    // accepts.
    const uint32_t first = page + control::first_line;
    const auto line = [first](uint32_t index) {
        return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(first + index * priority::row_bytes);
    };
    uint32_t active = 0, bypassed = 0;  // a bit for each user
    for (uint32_t user = 0; user < priority::max_users; ++user) {
        const bool skipped = user >= users || prefixes[user] == jobs::skipped;
        const bool bypasses = !skipped && jobs::span_of(prefixes[user]).bypassed();
        active |= (skipped ? 0u : 1u) << user;
        bypassed |= (bypasses ? 1u : 0u) << user;
        line(0)[user] = 0;
        line(1)[user] = 0;
        line(2)[user] = guess_decision::priority_of(skipped, bypasses, false);
    }
    uint32_t jobs_left = 0;
    for (uint32_t left = active; left != 0; left &= left - 1) {
        jobs_left += per_user;
    }
    Numbers numbers{};
    const auto accepts = [&](uint32_t user) {
        return ((active & ~bypassed) >> user & 1) != 0 &&
               guess_decision::passes(numbers[distance_sq][user], numbers[bound][user]);
    };

    job_sums::wait_for(config::sem_measured, jobs_left);
    const volatile tt_l1_ptr uint32_t* landed =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_write_ptr(config::cb_sums));
    for (uint32_t user = 0; user < users; ++user) {
        if ((active >> user & 1) != 0) {
            job_sums::Sums sums{};
            for (uint32_t job = 0; job < per_user; ++job) {
                job_sums::add(sums, landed, {0, 1, 2});
                landed += job_sums::bytes / sizeof(uint32_t);
            }
            for (uint32_t kind = 0; kind < kinds; ++kind) {
                numbers[kind][user] = sums.of[kind];
            }
        } else {
            landed += per_user * job_sums::bytes / sizeof(uint32_t);
        }
    }
    const bool given_away = verdict.given_away(users, numbers, accepts, [] {
        return !config::has_peer || guess_verdict::delivered(config::sem_delivery);
    });
    for (uint32_t user = 0; user < users; ++user) {
        line(0)[user] = numbers[distance_sq][user];
        line(1)[user] = numbers[norm_sq][user];
        if (given_away && accepts(user)) {
            line(2)[user] = guess_decision::priority_of(false, false, true);
        }
    }
    (void)line(2)[0];  // read back: all have reached L1
    const auto write = [&](uint32_t index, uint64_t to, uint32_t size) {
        noc_async_write<priority::row_bytes>(first + index * priority::row_bytes, to, size);
    };
    write(0, distances, users * sizeof(uint32_t));
    write(1, norms, users * sizeof(uint32_t));
    if (priority_address != 0) {
        write(2, priorities, priority::row_bytes);
    }
    noc_async_write_barrier();
}
