// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The output core's writer (BRISC): accepts or rejects each user's guess and writes distances, norms and this rank's
// priorities. A guess that did not reach the peer is not accepted: this rank then holds the layer. If a user's heads
// are on several chips (TP_GROUP), these decide together by the sums of their numbers (common/kernels/tp_session.hpp).

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "control.hpp"
#include "tt_kernels/common/kernels/chunk_split.hpp"
#include "tt_kernels/common/kernels/guess_decision.hpp"
#include "tt_kernels/common/kernels/guess_verdict.hpp"
#include "tt_kernels/common/kernels/priority.hpp"

namespace {

constexpr uint32_t line_bytes = priority::row_bytes;
using namespace guess_verdict;

// Whether a user's guess exists and passes the test ||guess - exact|| < threshold * ||exact||.
bool accepts(const volatile tt_l1_ptr uint32_t* words, const Numbers& numbers, uint32_t user) {
    const uint32_t tokens = words[control::first_tokens + user];
    return tokens > 0 && !config::guess().bypassed(tokens) &&
           guess_decision::passes(numbers[distance_sq][user], numbers[bound][user]);
}

// given_away: whether the peers of all chips of the TP group have their guesses, and all of these chips know it.
uint32_t priority_of(
    const volatile tt_l1_ptr uint32_t* words, const Numbers& numbers, uint32_t user, bool given_away) {
    const uint32_t tokens = words[control::first_tokens + user];
    return guess_decision::priority_of(
        tokens == 0, config::guess().bypassed(tokens), given_away && accepts(words, numbers, user));
}

}  // namespace

void kernel_main() {
    constexpr auto norm_args = ACCESSOR_ARGS(norm);
    const uint32_t priority_address = RUNTIME_ARG(priority);  // 0: there are none to update
    cb_wait_front(config::cb_control_writer, 1);
    const volatile tt_l1_ptr uint32_t* words =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_control_writer));
    if (words[control::receiving]) {
        return;
    }
    Verdict verdict;
    // What can be done before the last head is there.
    const uint64_t distances = TensorAccessor(norm_args, RUNTIME_ARG(distance_sq)).get_noc_addr(0);
    const uint64_t norms = TensorAccessor(norm_args, RUNTIME_ARG(norm_sq)).get_noc_addr(0);
    const uint64_t priorities = TensorAccessor(ACCESSOR_ARGS(priority), priority_address).get_noc_addr(0);
    Numbers numbers;
    for (uint32_t user = 0; user < config::users(); ++user) {
        cb_wait_front(config::cb_norms, 1);
        const volatile tt_l1_ptr uint32_t* norms_tile =
            reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_norms));
        numbers[distance_sq][user] = norms_tile[guess_decision::distance_element];
        numbers[norm_sq][user] = norms_tile[guess_decision::norm_element];
        numbers[bound][user] = norms_tile[guess_decision::bound_element];
        cb_pop_front(config::cb_norms, 1);
    }
    const bool given_away = verdict.given_away(
        config::users(), numbers, [&](uint32_t user) { return accepts(words, numbers, user); },
        [] { return !config::has_peer || guess_verdict::delivered(config::sem_delivery); });

    // The reader has finished with its lines of the scratch: the control page was made from them.
    const uint32_t scratch = get_write_ptr(config::cb_scratch);
    const auto line = [&](uint32_t index) {
        return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch + index * line_bytes);
    };
    for (uint32_t user = 0; user < config::users(); ++user) {
        line(0)[user] = numbers[distance_sq][user];
        line(1)[user] = numbers[norm_sq][user];
        line(2)[user] = priority_of(words, numbers, user, given_away);
    }
    for (uint32_t user = config::users(); user < priority::max_users; ++user) {
        line(2)[user] = priority::yielded;
    }
    noc_async_write<line_bytes>(scratch, distances, config::users() * sizeof(uint32_t));
    noc_async_write<line_bytes>(scratch + line_bytes, norms, config::users() * sizeof(uint32_t));
    if (priority_address != 0) {
        noc_async_write<line_bytes>(scratch + 2 * line_bytes, priorities, priority::row_bytes);
    }
    noc_async_write_barrier();
}
