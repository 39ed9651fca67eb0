// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The output core's writer (BRISC): decides on each user's guess by what compute measured (guess_verdict.hpp).

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "tt_kernels/common/kernels/guess_verdict.hpp"

void kernel_main() {
    using namespace guess_verdict;
    cb_wait_front(config::cb_control_writer, 1);
    const auto* words =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_control_writer));
    decide(
        words, [](uint32_t tokens) { return config::guess().bypassed(tokens); },
        [](uint32_t, Numbers& numbers) {
            for (uint32_t user = 0; user < config::users(); ++user) {
                cb_wait_front(config::cb_norms, 1);
                const auto* tile =
                    reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_norms));
                numbers[distance_sq][user] = tile[guess_decision::distance_element];
                numbers[norm_sq][user] = tile[guess_decision::norm_element];
                numbers[bound][user] = tile[guess_decision::bound_element];
                cb_pop_front(config::cb_norms, 1);
            }
        });
}
