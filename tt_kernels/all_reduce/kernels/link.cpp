// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The link core: sends the packed pieces of all workers to the workers of all other chips, waits for theirs, and tells
// its own workers. A packet goes along the line to every chip of its direction.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "session.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"

namespace {

constexpr uint32_t packet_bytes = get_named_compile_time_arg_val("packet_bytes");

uint64_t worker_address(uint32_t worker, uint32_t l1) {
    const uint32_t index = RUNTIME_INDEX(worker_cores) + 2 * worker;
    return PeerLink::core_address(get_arg_val<uint32_t>(index), get_arg_val<uint32_t>(index + 1), l1);
}

// Sends all workers' chunks from L1 to `landing` on the same workers of the chips that the link reaches.
bool send(PeerLink& link, uint32_t from, uint32_t landing) {
    if constexpr (config::chunk_bytes <= packet_bytes) {
        constexpr uint32_t fit = packet_bytes / config::chunk_bytes;
        constexpr uint32_t together = fit < PeerLink::max_pieces ? fit : PeerLink::max_pieces;
        for (uint32_t worker = 0; worker < config::workers; worker += together) {
            const uint32_t left = config::workers - worker, count = left < together ? left : together;
            uint64_t to[together];
            for (uint32_t i = 0; i < count; ++i) {
                to[i] = worker_address(worker + i, landing);
            }
            if (!link.scatter(from + worker * config::chunk_bytes, to, count, config::chunk_bytes)) {
                return false;
            }
        }
    } else {
        for (uint32_t worker = 0; worker < config::workers; ++worker) {
            for (uint32_t sent = 0; sent < config::chunk_bytes; sent += packet_bytes) {
                const uint32_t left = config::chunk_bytes - sent;
                const uint32_t bytes = left < packet_bytes ? left : packet_bytes;
                const uint32_t part = from + worker * config::chunk_bytes + sent;
                if (!link.write(part, worker_address(worker, landing + sent), bytes)) {
                    return false;
                }
            }
        }
    }
    return true;
}

}  // namespace

void kernel_main() {
    constexpr uint32_t packed_semaphore = get_named_compile_time_arg_val("packed_semaphore");
    constexpr uint32_t decision_semaphore = get_named_compile_time_arg_val("decision_semaphore");
    const uint32_t rank = RUNTIME_ARG(rank);
    const uint64_t timeout = bounded::cycles_arg(RUNTIME_INDEX(timeout));

    all_reduce::Session session(RUNTIME_ARG(state), rank, config::chips, timeout);
    bool fine = session.usable();
    tp::Links links(RUNTIME_INDEX(links), timeout, fine);
    uint32_t slot = 0;
    noc_semaphore_wait_min(
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(packed_semaphore)), config::workers);
    if (fine) {
        slot = session.begin();
        const uint32_t landing = RUNTIME_ARG(landing) + (slot * config::chips + rank) * config::chunk_bytes;
        links.set_reach(rank, config::chips);
        links.for_each([&](PeerLink& link) {
            fine =
                fine && ((send(link, get_write_ptr(config::cb_packed), landing) && session.confirm(link)) ||
                         session.blocked());
        });
        fine = fine && session.await_all();
    }
    for (uint32_t worker = 0; worker < config::workers; ++worker) {
        const uint32_t index = RUNTIME_INDEX(worker_cores) + 2 * worker;
        const uint32_t x = get_arg_val<uint32_t>(index), y = get_arg_val<uint32_t>(index + 1);
        noc_semaphore_inc(
            get_noc_addr(x, y, get_semaphore(decision_semaphore)),
            fine ? config::received + slot : config::failed);
    }
    links.close();
    noc_async_atomic_barrier();
}
