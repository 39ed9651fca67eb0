// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Sending to the peer of a pair: over the fabric to the next chip (PEER_LINK_FABRIC), or over the NoC to
// another core of this chip (PEER_LINK_NOC, the virtual pair). Both have the same functions:
//
//   PeerLink(next)             read the link's runtime arguments from index `next` on, and advance it
//   core_address(l1)           the address of `l1` on the peer's exchange core, for write()
//   page_address(t, page, o)   the address of offset `o` of a page; `t` accesses the peer's tensor
//   write(from, to, bytes, c)  copy local L1 to the peer, at most `max_write` bytes; unless `c` is 0, then increment it
//   scatter(from, to, n, bytes) copy n pieces of `bytes` each, one after another in local L1, to an address each; n is
//                              at most `max_pieces`, all of them at most `max_write` bytes
//   increment(l1)              add 1 to a word of the peer's exchange core, after all writes have landed
//   drain()                    wait until the sources of all writes may be reused
//   close()                    end the connection
//
// write() and increment() return false, and send nothing, if the link stays blocked for `timeout` cycles.
// All addresses given to write() must come from this link. Only one RISC of a core may hold a link.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "bounded_wait.hpp"

#if defined(PEER_LINK_FABRIC) == defined(PEER_LINK_NOC)
#error "define one of PEER_LINK_FABRIC and PEER_LINK_NOC"
#endif

#if defined(PEER_LINK_FABRIC)

#include "tt_metal/fabric/hw/inc/edm_fabric/edm_fabric_worker_adapters.hpp"
#include "tt_metal/fabric/hw/inc/linear/addrgen_api.h"
#include "tt_metal/fabric/hw/inc/packet_header_pool.h"

class PeerLink {
public:
    // Runtime arguments: x and y of the peer's core, hops, then what ttnn.setup_fabric_connection returned.
    // finish: else finish_opening() is to follow.
    explicit PeerLink(uint32_t& next, uint64_t timeout, bool finish = true) :
        timeout_(timeout),
        x_(get_arg_val<uint32_t>(next)),
        y_(get_arg_val<uint32_t>(next + 1)),
        hops_(get_arg_val<uint32_t>(next + 2)),
        header_(PacketHeaderPool::allocate_header()) {
        std::size_t index = next + 3;
        sender_ = Sender::build_from_args<ProgrammableCoreType::TENSIX>(index);
        next = index;
        sender_.open_start();
        if (finish) {
            finish_opening();
        }
    }

    void finish_opening() { sender_.open_finish(); }

    // Packets go to the chip this many hops away, 1 if the runtime arguments say so.
    void set_hops(uint32_t hops) { hops_ = hops; }

    // Packets go to all chips up to this many hops away, to the same addresses on each.
    void set_reach(uint32_t hops) {
        hops_ = hops;
        to_all_ = true;
    }

    // Fabric packets carry addresses in the coordinates of NoC 0.
    uint64_t core_address(uint32_t l1) const { return core_address(x_, y_, l1); }
    static uint64_t core_address(uint32_t x, uint32_t y, uint32_t l1) {
        return safe_get_noc_addr(x, y, l1, 0);
    }

    template <typename Accessor>
    uint64_t page_address(const Accessor& tensor, uint32_t page, uint32_t offset) const {
        return tt::tt_fabric::linear::addrgen_detail::get_noc_address(tensor, page, offset);
    }

    // counter: unless 0, a word of the peer's exchange core to which 1 is added, once this and all before has landed.
    bool write(uint32_t from, uint64_t to, uint32_t bytes, uint32_t counter = 0) {
        return send(from, bytes, [&] { command_write(header_, to, bytes, counter); });
    }

    static constexpr uint32_t max_pieces = NOC_SCATTER_WRITE_MAX_CHUNKS;

    bool scatter(uint32_t from, const uint64_t* to, uint32_t pieces, uint32_t bytes) {
        return send(from, pieces * bytes, [&] { command_scatter(header_, to, pieces, bytes); });
    }

    bool increment(uint32_t l1) {
        return send(0, 0, [&] { command_increment(header_, core_address(l1)); });
    }

    // A packet whose header is ready before what it carries is; then send(). A RISC has eight headers, so that each of
    // two links may prepare `max_prepared`. counter: see write().
    using Packet = volatile tt_l1_ptr PACKET_HEADER_TYPE*;
    static constexpr uint32_t max_prepared = 3;

    Packet prepare_write(uint64_t to, uint32_t bytes, uint32_t counter = 0) {
        Packet packet = PacketHeaderPool::allocate_header();
        route(packet);
        command_write(packet, to, bytes, counter);
        return packet;
    }

    // Sends a prepared packet without waiting until it has left: see drain().
    bool send(Packet packet, uint32_t from, uint32_t bytes) {
        if (!await_space()) {
            return false;
        }
        sender_.send_payload_without_header_non_blocking_from_address(from, bytes);
        const uint32_t header = reinterpret_cast<uint32_t>(packet);
        sender_.send_payload_flush_non_blocking_from_address(header, sizeof(PACKET_HEADER_TYPE));
        return true;
    }

    void drain() { noc_async_writes_flushed(); }

    void close() { sender_.close(); }

private:
    using Sender = tt::tt_fabric::WorkerToFabricEdmSender;

    bool await_space() {
        return bounded::wait(timeout_, [this] { return sender_.edm_has_space_for_packet(); });
    }

    void route(Packet header) const {
        if (to_all_) {
            header->to_chip_multicast(tt::tt_fabric::MulticastRoutingCommandHeader{1, hops_});
        } else {
            header->to_chip_unicast(hops_);
        }
    }

    void command_write(Packet header, uint64_t to, uint32_t bytes, uint32_t counter) const {
        if (counter == 0) {
            header->to_noc_unicast_write(tt::tt_fabric::NocUnicastCommandHeader{to}, bytes);
        } else {
            header->to_noc_fused_unicast_write_atomic_inc(
                tt::tt_fabric::NocUnicastAtomicIncFusedCommandHeader{to, core_address(counter), 1, true},
                bytes);
        }
    }

    void command_scatter(Packet header, const uint64_t* to, uint32_t pieces, uint32_t bytes) const {
        if (pieces < tt::tt_fabric::NOC_SCATTER_WRITE_MIN_CHUNKS) {
            command_write(header, to[0], bytes, 0);
            return;
        }
        const uint16_t size = bytes;
        const uint16_t sizes[max_pieces - 1] = {size, size, size};
        header->to_noc_unicast_scatter_write(
            tt::tt_fabric::NocUnicastScatterCommandHeader(to, sizes, pieces), pieces * bytes);
    }

    static void command_increment(Packet header, uint64_t to) {
        // The peer's router applies it after the writes it received before.
        header->to_noc_unicast_atomic_inc(tt::tt_fabric::NocUnicastAtomicIncCommandHeader{to, 1, true});
    }

    // Sends a packet of `bytes` from L1 address `from`; `command` says in its header what the peer's router does.
    template <typename Command>
    bool send(uint32_t from, uint32_t bytes, Command command) {
        if (!await_space()) {
            return false;
        }
        route(header_);
        command();
        if (bytes > 0) {
            sender_.send_payload_without_header_non_blocking_from_address(from, bytes);
        }
        // Blocks until payload and header have left L1: the one header is used again by the next packet.
        const uint32_t header = reinterpret_cast<uint32_t>(header_);
        sender_.send_payload_flush_blocking_from_address(header, sizeof(PACKET_HEADER_TYPE));
        return true;
    }

    uint64_t timeout_;
    uint32_t x_, y_;
    uint8_t hops_;
    bool to_all_ = false;
    Packet header_;
    Sender sender_;
};

#else  // PEER_LINK_NOC

class PeerLink {
public:
    // Runtime arguments: x and y of the peer's core.
    explicit PeerLink(uint32_t& next, uint64_t) :
        x_(get_arg_val<uint32_t>(next)), y_(get_arg_val<uint32_t>(next + 1)) {
        next += 2;
    }

    uint64_t core_address(uint32_t l1) const { return get_noc_addr(x_, y_, l1); }

    template <typename Accessor>
    uint64_t page_address(const Accessor& tensor, uint32_t page, uint32_t offset) const {
        return tensor.get_noc_addr(page, offset);
    }

    bool write(uint32_t from, uint64_t to, uint32_t bytes, uint32_t counter = 0) {
        noc_async_write(from, to, bytes);
        return counter == 0 || increment(counter);
    }

    static constexpr uint32_t max_pieces = 4;

    bool scatter(uint32_t from, const uint64_t* to, uint32_t pieces, uint32_t bytes) {
        for (uint32_t piece = 0; piece < pieces; ++piece) {
            noc_async_write(from + piece * bytes, to[piece], bytes);
        }
        return true;
    }

    bool increment(uint32_t l1) {
        noc_async_write_barrier();
        noc_semaphore_inc(core_address(l1), 1);
        return true;
    }

    void drain() { noc_async_writes_flushed(); }

    void close() { noc_async_atomic_barrier(); }

private:
    uint32_t x_, y_;
};

#endif
