// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A link core: sends the packed pieces of its workers to all other chips, along the line to every chip of a direction.
// The first one keeps the calls, waits for the other chips' rows and tells all workers of this chip; a second one sends
// when the first says so, and answers whether it could.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "session.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"

namespace {

using config::packet_bytes;

uint64_t worker_address(uint32_t worker, uint32_t l1) {
    const uint32_t index = RUNTIME_INDEX(worker_cores) + 2 * worker;
    return PeerLink::core_address(get_arg_val<uint32_t>(index), get_arg_val<uint32_t>(index + 1), l1);
}

// Workers' chunks that share a packet.
constexpr uint32_t fit = packet_bytes / config::chunk_bytes;
constexpr uint32_t together = fit < PeerLink::max_pieces ? (fit > 0 ? fit : 1) : PeerLink::max_pieces;
constexpr uint32_t packets = config::direct ? 1 : (config::link_workers + together - 1) / together;
// Whether all headers of a call are made while the workers pack.
constexpr bool prepared = config::direct || (fit > 0 && packets < PeerLink::max_prepared);

constexpr uint32_t chunks_of(uint32_t packet) {
    const uint32_t left = config::link_workers - packet * together;
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

// What one link sends in a call: all chunks of the link core's workers, then an increment of this chip's counter on the
// chips that it reaches. landing: on workers, or on the link core. arrival: the counter's address.
class Shipment {
public:
    void prepare(PeerLink& link, uint32_t landing, uint64_t arrival) {
        if constexpr (config::direct) {
            packets_[0] = link.prepare_counted_write(link.core_address(landing), config::link_bytes, arrival);
        } else if constexpr (prepared) {
            for_each_packet(landing, [&](uint32_t packet, const uint64_t* to, uint32_t chunks) {
                packets_[packet] = link.prepare_scatter(to, chunks, config::chunk_bytes);
                return true;
            });
            packets_[packets] = link.prepare_increment(arrival);
        }
    }

    // from: where the packed chunks are.
    bool send(PeerLink& link, uint32_t from, uint32_t landing, uint64_t arrival) {
        if constexpr (config::direct) {
            return link.send(packets_[0], from, config::link_bytes);
        } else if constexpr (prepared) {
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
        for (uint32_t worker = 0; worker < config::link_workers; ++worker) {
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
    constexpr uint32_t sent_semaphore = get_named_compile_time_arg_val("sent_semaphore");
    const auto semaphore = [](uint32_t id) {
        return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(id));
    };
    const uint32_t rank = RUNTIME_ARG(rank), state = RUNTIME_ARG(state);
    const uint64_t timeout = bounded::cycles_arg(RUNTIME_INDEX(timeout));
    // The other link core, if there is one.
    const bool leads = RUNTIME_ARG(leads) != 0;
    const uint32_t other_x = RUNTIME_ARG(other_x), other_y = RUNTIME_ARG(other_y);

    all_reduce::Session session(state, rank, config::chips, timeout);
    uint32_t order = config::failed;
    if (leads) {
        if (session.usable()) {
            order = config::received + session.begin();
        }
        if constexpr (config::links > 1) {
            noc_semaphore_inc(get_noc_addr(other_x, other_y, get_semaphore(decision_semaphore)), order);
        }
    } else {
        noc_semaphore_wait_min(semaphore(decision_semaphore), config::received);
        order = *semaphore(decision_semaphore);
    }
    bool fine = order != config::failed;
    tp::Links links(RUNTIME_INDEX(links), timeout, fine);
    Shipment shipments[2];
    uint32_t landing = 0, direction = 0;
    const uint64_t arrival = PeerLink::core_address(
        leads ? RUNTIME_ARG(own_x) : other_x, leads ? RUNTIME_ARG(own_y) : other_y, session.arrival());
    if (fine) {
        const uint32_t bytes = config::direct ? config::link_bytes : config::chunk_bytes;
        landing = RUNTIME_ARG(landing) + ((order - config::received) * config::chips + rank) * bytes;
        links.set_reach(rank, config::chips);
        links.for_each([&](PeerLink& link) { shipments[direction++].prepare(link, landing, arrival); });
    }
    noc_semaphore_wait_min(semaphore(packed_semaphore), config::link_workers);
    if (fine) {
        const uint32_t from = get_write_ptr(config::cb_packed);
        direction = 0;
        links.for_each([&](PeerLink& link) {
            fine = fine && shipments[direction++].send(link, from, landing, arrival);
        });
    }
    if (leads) {
        bool all_sent = fine;
        if constexpr (config::links > 1) {
            noc_semaphore_wait_min(semaphore(sent_semaphore), config::sent);  // its waits are bounded
            all_sent = all_sent && *semaphore(sent_semaphore) == config::sent;
        }
        if (order != config::failed) {
            fine = (all_sent || session.blocked()) && session.await_all(config::links);
        }
        for (uint32_t worker = 0; worker < config::workers; ++worker) {
            const uint32_t index = RUNTIME_INDEX(worker_cores) + 2 * worker;
            const uint32_t x = get_arg_val<uint32_t>(index), y = get_arg_val<uint32_t>(index + 1);
            noc_semaphore_inc(
                get_noc_addr(x, y, get_semaphore(decision_semaphore)), fine ? order : config::failed);
        }
    } else {
        noc_semaphore_inc(
            get_noc_addr(other_x, other_y, get_semaphore(sent_semaphore)),
            fine ? config::sent : config::blocked);
    }
    links.close();
    noc_async_atomic_barrier();
}
