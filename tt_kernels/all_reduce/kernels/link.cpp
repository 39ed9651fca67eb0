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

// Workers' chunks that share a packet.
constexpr uint32_t fit = packet_bytes / config::chunk_bytes;
constexpr uint32_t together = fit < PeerLink::max_pieces ? (fit > 0 ? fit : 1) : PeerLink::max_pieces;
constexpr uint32_t packets = (config::workers + together - 1) / together;
// Whether all headers of a call are made while the workers pack.
constexpr bool prepared = fit > 0 && packets < PeerLink::max_prepared;

constexpr uint32_t chunks_of(uint32_t packet) {
    const uint32_t left = config::workers - packet * together;
    return left < together ? left : together;
}

// Calls visit(packet, addresses, chunks) for each packet of whole chunks to `landing` on the workers of other chips.
template <typename Visit>
bool for_each_packet(uint32_t landing, Visit visit) {
    for (uint32_t packet = 0; packet < packets; ++packet) {
        uint64_t to[together];
        for (uint32_t i = 0; i < chunks_of(packet); ++i) {
            to[i] = worker_address(packet * together + i, landing);
        }
        if (!visit(packet, to, chunks_of(packet))) {
            return false;
        }
    }
    return true;
}

constexpr uint32_t bytes_before(uint32_t packet) { return packet * together * config::chunk_bytes; }

// What one link sends in a call: all workers' chunks to the same workers of the chips it reaches, then an increment of
// this chip's counter there.
class Shipment {
public:
    void prepare(PeerLink& link, uint32_t landing, uint32_t arrival) {
        if constexpr (prepared) {
            for_each_packet(landing, [&](uint32_t packet, const uint64_t* to, uint32_t chunks) {
                packets_[packet] = link.prepare_scatter(to, chunks, config::chunk_bytes);
                return true;
            });
            packets_[packets] = link.prepare_increment(arrival);
        }
    }

    // from: where the packed chunks are.
    bool send(PeerLink& link, uint32_t from, uint32_t landing, uint32_t arrival) {
        if constexpr (prepared) {
            for (uint32_t packet = 0; packet < packets; ++packet) {
                const uint32_t bytes = chunks_of(packet) * config::chunk_bytes;
                if (!link.send(packets_[packet], from + bytes_before(packet), bytes)) {
                    return false;
                }
            }
            return link.send(packets_[packets], 0, 0);
        } else {
            return send_chunks(link, from, landing) && link.increment(arrival);
        }
    }

private:
    static bool send_chunks(PeerLink& link, uint32_t from, uint32_t landing) {
        if constexpr (fit > 0) {
            return for_each_packet(landing, [&](uint32_t packet, const uint64_t* to, uint32_t chunks) {
                return link.scatter(from + bytes_before(packet), to, chunks, config::chunk_bytes);
            });
        }
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
        return true;
    }

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
        landing = RUNTIME_ARG(landing) + (slot * config::chips + rank) * config::chunk_bytes;
        links.set_reach(rank, config::chips);
        links.for_each(
            [&](PeerLink& link) { shipments[direction++].prepare(link, landing, session.arrival()); });
    }
    noc_semaphore_wait_min(
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(packed_semaphore)), config::workers);
    if (fine) {
        const uint32_t from = get_write_ptr(config::cb_packed);
        direction = 0;
        links.for_each([&](PeerLink& link) {
            fine = fine &&
                   (shipments[direction++].send(link, from, landing, session.arrival()) || session.blocked());
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
