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
    const auto skips = [&](uint32_t user) {
        return user >= config::users() || prefixes[user] == jobs::skipped;
    };
    const auto bypasses = [&](uint32_t user) { return jobs::span_of(prefixes[user]).bypassed(); };

    const uint32_t per_user = config::kv_heads() * config::passes();
    uint32_t active = 0;
    for (uint32_t user = 0; user < config::users(); ++user) {
        active += skips(user) ? 0 : 1;
    }
    job_sums::wait_for(config::sem_measured, active * per_user);
    const volatile tt_l1_ptr uint32_t* landed =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_write_ptr(config::cb_sums));
    Numbers numbers{};
    for (uint32_t user = 0; user < config::users(); ++user) {
        job_sums::Sums sums{};
        for (uint32_t job = user * per_user; !skips(user) && job < (user + 1) * per_user; ++job) {
            job_sums::add(sums, landed + job * job_sums::bytes / sizeof(uint32_t), {0, 1, 2});
        }
        for (uint32_t kind = 0; kind < kinds; ++kind) {
            numbers[kind][user] = sums.of[kind];
        }
    }
    const auto accepts = [&](uint32_t user) {
        return !skips(user) && !bypasses(user) &&
               guess_decision::passes(numbers[distance_sq][user], numbers[bound][user]);
    };
    const bool given_away = verdict.given_away(config::users(), numbers, accepts, [] {
        return !config::has_peer || guess_verdict::delivered(config::sem_delivery);
    });

    const uint32_t first = page + control::first_line;
    const auto line = [&](uint32_t index) {
        return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(first + index * priority::row_bytes);
    };
    for (uint32_t user = 0; user < priority::max_users; ++user) {
        const bool skipped = skips(user);
        line(0)[user] = skipped ? 0 : numbers[distance_sq][user];
        line(1)[user] = skipped ? 0 : numbers[norm_sq][user];
        line(2)[user] =
            guess_decision::priority_of(skipped, !skipped && bypasses(user), given_away && accepts(user));
    }
    (void)line(2)[priority::max_users - 1];  // read back: all have reached L1
    const uint32_t bytes = config::users() * sizeof(uint32_t);
    const auto write = [&](uint32_t index, uint64_t to, uint32_t size) {
        noc_async_write<priority::row_bytes>(first + index * priority::row_bytes, to, size);
    };
    write(0, TensorAccessor(norm_args, RUNTIME_ARG(distance_sq)).get_noc_addr(0), bytes);
    write(1, TensorAccessor(norm_args, RUNTIME_ARG(norm_sq)).get_noc_addr(0), bytes);
    if (priority_address != 0) {
        write(
            2, TensorAccessor(ACCESSOR_ARGS(priority), priority_address).get_noc_addr(0),
            priority::row_bytes);
    }
    noc_async_write_barrier();
}
