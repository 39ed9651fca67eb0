// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// One call of the exchange: tell the peer this rank's priorities, learn the peer's, write both to `gathered`, then
// send the tensors (higher priority) or wait for them. The protocol is in common/kernels/peer_session.hpp. Packed rows
// land in a buffer of the exchange's own, in memory where those of a sender that is too late harm nobody.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "exchange.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/peer_link.hpp"
#include "tt_kernels/common/kernels/peer_session.hpp"
#include "tt_kernels/common/kernels/priority.hpp"

namespace {

// Without a barrier.
template <typename Accessor>
void write_gathered(const Accessor& gathered, uint32_t sp_rank, uint32_t row, uint32_t peer_row) {
    noc_async_write(row, gathered.get_noc_addr(sp_rank), priority::row_bytes);
    noc_async_write(peer_row, gathered.get_noc_addr(1 - sp_rank), priority::row_bytes);
}

// After a failure: later ops may rely on `gathered` saying that the peer is unknown, and if `holds_nothing` that this
// rank lacks the tensor of the higher priority.
template <typename Accessor>
void write_unsynchronised(
    const Accessor& gathered, uint32_t sp_rank, uint32_t row, uint32_t scratch, bool holds_nothing) {
    noc_async_write_barrier();  // of what it may have written before
    volatile tt_l1_ptr uint32_t* words = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch);
    for (uint32_t user = 0; user < priority::max_users; ++user) {
        words[user] = priority::unknown;
    }
    if (holds_nothing) {
        volatile tt_l1_ptr uint32_t* own = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(row);
        for (uint32_t user = 0; user < priority::max_users; ++user) {
            own[user] = priority::yielded;
        }
    }
    write_gathered(gathered, sp_rank, row, scratch);
}

// Whether this rank sends; fails when neither holds the result.
bool decide(peer::Session& session, uint32_t sp_rank, uint32_t users, bool& sends) {
    const uint32_t mine = priority::highest(session.priorities(), users);
    const uint32_t peers = priority::highest(session.peer_priorities(), users);
    if (mine == peers) {
        session.state().ties = session.state().ties + 1;
    }
    sends = priority::sends(mine, peers, sp_rank);
    return !priority::nobody_holds(mine, peers) || session.fail(peer::nobody);
}

template <
    uint32_t pieces_cb,
    uint32_t pages,
    uint32_t used_bytes,
    uint32_t piece_bytes,
    uint32_t packet_bytes,
    typename Accessor>
bool send_tensor(PeerLink& link, const Accessor& target) {
    constexpr uint32_t stride = exchange::stride(used_bytes, piece_bytes);
    constexpr uint32_t pieces = (used_bytes + stride - 1) / stride;
    // What a packet takes hardly depends on its bytes, so pieces of one size share one.
    constexpr uint32_t fit =
        packet_bytes / stride < PeerLink::max_pieces ? packet_bytes / stride : PeerLink::max_pieces;
    constexpr uint32_t together = used_bytes % stride == 0 && fit > 1 ? fit : 1;
    bool sent = true;
    uint32_t page = 0, piece = 0;
    for (uint32_t left = pages * pieces; left > 0;) {
        const uint32_t batch = left < exchange::batch ? left : exchange::batch;
        cb_wait_front(pieces_cb, exchange::batch);
        uint32_t from = get_read_ptr(pieces_cb);
        for (uint32_t first = 0; first < batch; first += together) {
            const uint32_t count = batch - first < together ? batch - first : together;
            const uint32_t bytes = exchange::piece_size(used_bytes, stride, piece);
            uint64_t to[together];
            for (uint32_t i = 0; i < count; ++i) {
                to[i] = link.page_address(target, page, piece * stride);
                if (++piece == pieces) {
                    piece = 0;
                    ++page;
                }
            }
            sent = sent && link.scatter(from, to, count, bytes);
            from += count * stride;
        }
        link.drain();
        // Popped even if nothing was sent, so that the reader can end.
        cb_pop_front(pieces_cb, exchange::batch);
        left -= batch;
    }
    return sent;
}

// Sends the packed rows in L1 to the pages of the peer's landing buffer; unless 0, the last of them increments `counter`.
template <uint32_t packed_bytes, uint32_t packet_bytes, typename Landing>
bool send_rows(PeerLink& link, const Landing& landing, uint32_t from, uint32_t counter) {
    bool sent = true;
    for (uint32_t page = 0, left = packed_bytes; left > 0; ++page) {
        const uint32_t bytes = left < packet_bytes ? left : packet_bytes;
        sent =
            sent && link.write(from, link.page_address(landing, page, 0), bytes, bytes == left ? counter : 0);
        from += bytes;
        left -= bytes;
    }
    return sent;
}

// Tells the reader and the helpers.
void decide_for_all(uint32_t semaphore, uint32_t decision) {
    *exchange::semaphore(semaphore) = decision;
    for (uint32_t helper = 0; helper < get_named_compile_time_arg_val("helpers"); ++helper) {
        const uint32_t x = get_arg_val<uint32_t>(RUNTIME_INDEX(helpers) + 2 * helper);
        const uint32_t y = get_arg_val<uint32_t>(RUNTIME_INDEX(helpers) + 2 * helper + 1);
        noc_semaphore_inc(get_noc_addr(x, y, get_semaphore(semaphore)), decision);  // from 0
    }
}

}  // namespace

// Each is read whatever happened to those before, so that the reader can end.
#define SEND_TENSOR(name)                                                                       \
    sent = send_tensor<                                                                         \
               pieces_cb, get_named_compile_time_arg_val("pages_" #name),                       \
               get_named_compile_time_arg_val("used_bytes_" #name), piece_bytes, packet_bytes>( \
               link, TensorAccessor(                                                            \
                         ACCESSOR_ARGS(name), RUNTIME_ARG(peer_##name),                         \
                         get_named_compile_time_arg_val("page_bytes_" #name))) &&               \
           sent;

#define PLUS_PAGES(name) +get_named_compile_time_arg_val("pages_" #name)

void kernel_main() {
    constexpr uint32_t pieces_cb = get_named_compile_time_arg_val("pieces_cb");
    constexpr uint32_t decision_semaphore = get_named_compile_time_arg_val("decision_semaphore");
    constexpr uint32_t piece_bytes = get_named_compile_time_arg_val("piece_bytes");
    constexpr uint32_t packet_bytes = get_named_compile_time_arg_val("packet_bytes");
    constexpr uint32_t rows_cb = get_named_compile_time_arg_val("rows_cb");
    constexpr uint32_t packed_bytes = get_named_compile_time_arg_val("packed_bytes");
    constexpr uint32_t users = get_named_compile_time_arg_val("users");
    constexpr bool all_packed = 0 FOR_EACH_TENSOR(PLUS_PAGES) == 0;  // every tensor's rows
    const uint32_t sp_rank = RUNTIME_ARG(sp_rank);
    const uint64_t timeout = bounded::cycles_arg(RUNTIME_INDEX(timeout));
    const auto priorities =
        TensorAccessor(ACCESSOR_ARGS(priority), RUNTIME_ARG(priority), priority::row_bytes);
    const auto gathered = TensorAccessor(ACCESSOR_ARGS(gathered), RUNTIME_ARG(gathered), priority::row_bytes);

    peer::Session session(RUNTIME_ARG(state), timeout);
    noc_async_read(priorities.get_noc_addr(0), session.priorities_address(), priority::row_bytes);
    // Free if nothing is sent, or once everything has been.
    static_assert(exchange::pieces_in_buffer * piece_bytes >= priority::row_bytes);
    const uint32_t scratch = get_write_ptr(pieces_cb);
    if (!session.usable()) {
        decide_for_all(decision_semaphore, exchange::end);
        noc_async_read_barrier();
        write_unsynchronised(gathered, sp_rank, session.priorities_address(), scratch, false);
        noc_async_atomic_barrier();
        return;
    }

    uint32_t link_args = RUNTIME_INDEX(link);
    PeerLink link(link_args, timeout);
    noc_async_read_barrier();
    bool sends = false;
    const bool met = session.arrive(link) && session.await_peer() && decide(session, sp_rank, users, sends);
    bool done = met;
    if (met) {
        write_gathered(
            gathered, sp_rank, session.priorities_address(),
            reinterpret_cast<uint32_t>(session.peer_priorities()));
    }
    if (met && sends) {
        decide_for_all(decision_semaphore, exchange::send);
        session.state().sent = session.state().sent + 1;
        bool sent = true;
        if constexpr (packed_bytes > 0) {
            const auto peer_landing =
                TensorAccessor(ACCESSOR_ARGS(landing), RUNTIME_ARG(peer_landing), packet_bytes);
            cb_wait_front(rows_cb, 1);
            sent = send_rows<packed_bytes, packet_bytes>(
                link, peer_landing, get_read_ptr(rows_cb), all_packed ? session.deliveries() : 0);
        }
        FOR_EACH_TENSOR(SEND_TENSOR)
        done = sent ? all_packed || session.confirm(link) : session.fail(peer::link_blocked);
    } else {
        done = met && session.await_delivery();
        const bool landed = done && packed_bytes > 0;
        decide_for_all(decision_semaphore, landed ? exchange::spread : exchange::end);
    }
    if (!done) {
        write_unsynchronised(gathered, sp_rank, session.priorities_address(), scratch, met && !sends);
    }
    link.drain();
    noc_async_write_barrier();
    link.close();
    noc_async_atomic_barrier();
}
