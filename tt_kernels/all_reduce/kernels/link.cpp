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
constexpr uint32_t packets = config::workers * config::chunk_bytes / packet_bytes;
// Whether all headers of a call are made while the workers pack.
constexpr bool prepared = packets <= PeerLink::max_prepared;

// What one link sends in a call: all workers' chunks to the chips it reaches. The last packet increments this chip's
// counter there.
class Shipment {
public:
    // landing: of this chip and call, on workers. arrival: the counter.
    void prepare(PeerLink& link, uint32_t landing, uint32_t arrival) {
        for (uint32_t packet = 0; prepared && packet < packets; ++packet) {
            packets_[packet] =
                link.prepare_write(to(packet, landing), packet_bytes, counter(packet, arrival));
        }
    }

    // chunks: where they are.
    bool send(PeerLink& link, uint32_t chunks, uint32_t landing, uint32_t arrival) {
        bool sent = true;
        for (uint32_t packet = 0; sent && packet < packets; ++packet) {
            const uint32_t from = chunks + packet * packet_bytes;
            if constexpr (prepared) {
                sent = link.send(packets_[packet], from, packet_bytes);
            } else {
                sent = link.write(from, to(packet, landing), packet_bytes, counter(packet, arrival));
            }
        }
        return sent;
    }

private:
    static uint64_t to(uint32_t packet, uint32_t landing) {
        const uint32_t from = packet * packet_bytes;
        const uint32_t index =
            RUNTIME_INDEX(worker_cores) + 2 * (from / config::landing_bytes * config::together);
        return PeerLink::core_address(
            get_arg_val<uint32_t>(index), get_arg_val<uint32_t>(index + 1),
            landing + from % config::landing_bytes);
    }

    static uint32_t counter(uint32_t packet, uint32_t arrival) { return packet + 1 == packets ? arrival : 0; }

    PeerLink::Packet packets_[PeerLink::max_prepared] = {};
};

}  // namespace

void kernel_main() {
    constexpr uint32_t packed_semaphore = get_named_compile_time_arg_val("packed_semaphore");
    constexpr uint32_t decision_semaphore = get_named_compile_time_arg_val("decision_semaphore");
    const uint32_t rank = RUNTIME_ARG(rank);
    const uint64_t timeout = bounded::cycles_arg(RUNTIME_INDEX(timeout));

    all_reduce::Session session(RUNTIME_ARG(state), rank, config::chips, timeout);
    bool fine = session.usable();
    tp::Links links(RUNTIME_INDEX(links), timeout, fine);
    Shipment shipments[2];
    uint32_t slot = 0, landing = 0, direction = 0;
    if (fine) {
        slot = session.begin();
        landing = RUNTIME_ARG(landing) + (slot * config::chips + rank) * config::landing_bytes;
        links.set_reach(rank, config::chips);
        links.for_each(
            [&](PeerLink& link) { shipments[direction++].prepare(link, landing, session.arrival()); });
    }
    noc_semaphore_wait_min(
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(packed_semaphore)),
        config::movers * config::workers);
    if (fine) {
        const uint32_t chunks = get_write_ptr(config::cb_packed);
        direction = 0;
        links.for_each([&](PeerLink& link) {
            fine = fine && (shipments[direction++].send(link, chunks, landing, session.arrival()) ||
                            session.blocked());
        });
    }
    uint64_t decisions[config::workers];
    for (uint32_t worker = 0; worker < config::workers; ++worker) {
        const uint32_t index = RUNTIME_INDEX(worker_cores) + 2 * worker;
        decisions[worker] = get_noc_addr(
            get_arg_val<uint32_t>(index), get_arg_val<uint32_t>(index + 1),
            get_semaphore(decision_semaphore));
    }
    const auto tell = [&](uint32_t more) {
        for (const uint64_t decision : decisions) {
            noc_semaphore_inc(decision, more);
        }
    };
    uint32_t news = slot == 0 ? 0 : config::odd_slot;
    fine = fine && config::for_each_other(rank, [&](uint32_t chip) {
               if (news >= config::received && !session.has_rows(chip)) {
                   tell(news);
                   news = 0;
               }
               news += config::received;
               return session.await_rows(chip);
           });
    tell(fine ? news : config::failed);
    links.close();
    noc_async_atomic_barrier();
}
