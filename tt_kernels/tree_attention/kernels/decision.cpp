// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The deciding core (BRISC): decides on each user's guess (guess_verdict.hpp) by the sums of its jobs (measured_rows.hpp),
// added up in their order.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "job_sums.hpp"
#include "jobs.hpp"
#include "tt_kernels/common/kernels/fetch_control.hpp"
#include "tt_kernels/common/kernels/guess_verdict.hpp"

void kernel_main() {
    using namespace guess_verdict;
    const uint32_t page = get_write_ptr(config::cb_control);
    control::fetch(page);
    decide(
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(page),
        [](uint32_t tokens) { return jobs::span_of(tokens).bypassed(); },
        [](uint32_t active, Numbers& numbers) {
            const uint32_t per_user = config::kv_heads() * config::passes();
            uint32_t jobs_left = 0;
            for (uint32_t left = active; left != 0; left &= left - 1) {
                jobs_left += per_user;
            }
            job_sums::wait_for(config::sem_measured, jobs_left);
            const auto* landed =
                reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_write_ptr(config::cb_sums));
            for (uint32_t user = 0; user < config::users(); ++user) {
                job_sums::Sums sums{};
                for (uint32_t job = 0; job < per_user; ++job) {
                    if ((active >> user & 1) != 0) {
                        job_sums::add(sums, landed, {0, 1, 2});
                    }
                    landed += job_sums::bytes / sizeof(uint32_t);
                }
                for (uint32_t kind = 0; kind < kinds; ++kind) {
                    numbers[kind][user] = sums.of[kind];
                }
            }
        });
}
