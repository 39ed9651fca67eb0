// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The output core's writer (BRISC): accepts or rejects each user's guess and writes distances, norms and this
// member's priorities. A guess that did not reach the peer is not accepted: this member holds the layer then.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "control.hpp"
#include "tt_kernels/common/kernels/chunk_split.hpp"
#include "tt_kernels/common/kernels/priority.hpp"

namespace {

constexpr uint32_t infinity = 0x7F800000;
constexpr uint32_t line_bytes = priority::row_bytes;

// Squares are not negative, so their bits order as they do; of a NaN or an infinity nothing is accepted.
bool less(uint32_t distance, uint32_t bound) { return bound < infinity && distance < bound; }

// Waits for the exchange core, whose own waits are bounded; long before the decision it is done as a rule.
bool delivered() {
    if constexpr (config::has_peer) {
        const volatile tt_l1_ptr uint32_t* delivery =
            reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(config::sem_delivery));
        while (*delivery == 0) {
            invalidate_l1_cache();
        }
        return *delivery == config::guess_delivered;
    }
    return true;
}

}  // namespace

void kernel_main() {
    constexpr auto norm_args = ACCESSOR_ARGS(norm);
    const uint32_t priority_address = RUNTIME_ARG(own_priority);  // 0: there are none to update
    cb_wait_front(config::cb_control_writer, 1);
    const volatile tt_l1_ptr uint32_t* words =
        reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_control_writer));
    if (words[control::receiving]) {
        return;
    }
    // The reader is done with its lines of the scratch: the control page came after them.
    const uint32_t scratch = get_write_ptr(config::cb_scratch);
    volatile tt_l1_ptr uint32_t* distance = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch);
    volatile tt_l1_ptr uint32_t* norm = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch + line_bytes);
    volatile tt_l1_ptr uint32_t* outcome = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch + 2 * line_bytes);
    for (uint32_t user = config::users(); user < priority::max_users; ++user) {
        outcome[user] = priority::accepted;
    }
    // Whatever can be done before the last head is there.
    const uint64_t distances = TensorAccessor(norm_args, RUNTIME_ARG(distance_sq)).get_noc_addr(0);
    const uint64_t norms = TensorAccessor(norm_args, RUNTIME_ARG(norm_sq)).get_noc_addr(0);
    const uint64_t priorities = TensorAccessor(ACCESSOR_ARGS(priority), priority_address).get_noc_addr(0);
    for (uint32_t user = 0; user < config::users(); ++user) {
        cb_wait_front(config::cb_verdict, 1);
        const volatile tt_l1_ptr uint32_t* verdict =
            reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_read_ptr(config::cb_verdict));
        distance[user] = verdict[config::verdict_distance];
        norm[user] = verdict[config::verdict_norm];
        const uint32_t bound = verdict[config::verdict_bound];
        const uint32_t tokens = words[control::first_tokens + user];
        if (tokens == 0) {
            outcome[user] = priority::accepted;  // nothing to do for a skipped user: it keeps no member at work
        } else if (tokens < 2 * config::chunk_tiles() * attention::tile_tokens) {
            outcome[user] = priority::bypassed;
        } else {
            outcome[user] = less(distance[user], bound) && delivered() ? priority::accepted : priority::rejected;
        }
        cb_pop_front(config::cb_verdict, 1);
    }
    noc_async_write<line_bytes>(scratch, distances, config::users() * sizeof(uint32_t));
    noc_async_write<line_bytes>(scratch + line_bytes, norms, config::users() * sizeof(uint32_t));
    if (priority_address != 0) {
        noc_async_write<line_bytes>(scratch + 2 * line_bytes, priorities, priority::row_bytes);
    }
    noc_async_write_barrier();
}
