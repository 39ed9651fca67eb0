// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A call of the exchange core (BRISC), the only one that talks to the peer, for every op that emits a guess. The
// sender's writes the guesses of all users straight into the peer's `exact` once all of them are here; the receiver's
// waits for that, acknowledges it and writes the outputs that its idle cores do not. Each tells the other that it is in
// this call, and in which role (peer_session.hpp), so a sender writes only into a peer that waits for it, and neither
// runs more than one call ahead.
//
// The sender alone decides who holds the layer: it gives the layer away only with an acknowledged guess, and its
// HOLDS_EXACT outranks the receiver's HOLDS_GUESS. So a late or lost acknowledgement costs a hit, never agreement. A
// receiver without a guess holds nothing: its priorities become 0.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "peer_link.hpp"
#include "peer_session.hpp"
#include "priority.hpp"
#include "tile_masks.hpp"
#include "tile_rows.hpp"

#ifndef SGDC_UNGATED
#error "the exchange must be compiled with SGDC_UNGATED, or a rank that skips would leave its peer waiting"
#endif

namespace guess_exchange {

constexpr uint32_t pieces = (tile_rows::tile_bytes + PEER_MAX_WRITE - 1) / PEER_MAX_WRITE;
constexpr uint32_t piece_bytes = tile_rows::tile_bytes / pieces;
static_assert(pieces * piece_bytes == tile_rows::tile_bytes);

// What a rank does in a call. alone: the exchange before this call did not reach the peer. users: a bit for each user
// that is not skipped. delivery: the semaphore by which the core that decides hears whether the peer has the guess.
struct Call {
    bool sends;
    bool alone;
    uint32_t users;
    uint64_t delivery;
};

// Sends the tile at L1 address `from` to page `page` of the peer's tensor.
template <typename Accessor>
inline bool send_tile(PeerLink& link, uint32_t from, const Accessor& tensor, uint32_t page) {
    for (uint32_t offset = 0; offset < tile_rows::tile_bytes; offset += piece_bytes) {
        if (!link.write(from + offset, link.page_address(tensor, page, offset), piece_bytes)) {
            return false;
        }
    }
    return true;
}

// Writes this rank's priorities by way of `scratch`: `value` for each of `users`, 0 for the others.
template <typename Priority>
inline void hold(const Priority& priorities, uint32_t scratch, uint32_t users, uint32_t value) {
    tile_masks::fill(scratch, priority::row_bytes, priority::yielded);
    volatile tt_l1_ptr uint32_t* held = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch);
    for (uint32_t user = 0; users >> user != 0; ++user) {
        if ((users >> user & 1) != 0) {
            held[user] = value;
        }
    }
    noc_async_write(scratch, priorities.get_noc_addr(0), priority::row_bytes);
    noc_async_write_barrier();
}

// Nothing is measured on a receiver: its distances and norms, of `users` users, are 0.
template <typename Norm>
inline void clear_numbers(const Norm& distances, const Norm& norms, uint32_t users) {
    const uint32_t bytes = users * sizeof(uint32_t);
    noc_async_write(MEM_ZEROS_BASE, distances.get_noc_addr(0), bytes);
    noc_async_write(MEM_ZEROS_BASE, norms.get_noc_addr(0), bytes);
    noc_async_write_barrier();
}

inline void report(uint64_t delivery, bool delivered) {
    noc_semaphore_inc(delivery, delivered ? priority::guess_delivered : priority::guess_undelivered);
    noc_async_atomic_barrier();
}

// One call. await_guesses() returns once this rank's guesses are complete; send(link) writes them to the peer and
// returns whether the link took them; finish() writes what a receiver with a guess has to, its priorities apart.
template <typename Priority, typename Await, typename Send, typename Finish>
inline void run(
    uint32_t state,
    uint64_t timeout,
    uint32_t link_args,
    const Call& call,
    const Priority& priorities,
    uint32_t scratch,
    Await await_guesses,
    Send send,
    Finish finish) {
    peer::Session session(state, timeout);
    if (!session.usable() || (call.alone && !session.fail(peer::unsynchronised))) {
        if (call.sends) {
            report(call.delivery, false);
        } else {
            hold(priorities, scratch, 0, priority::yielded);
        }
        return;
    }
    PeerLink link(link_args, timeout);
    const peer::Role role = call.sends ? peer::sender : peer::receiver;
    const bool met = session.arrive_as(link, role, call.users) && session.await_opposite();
    if (call.sends) {
        await_guesses();
        bool delivered = met;
        if (delivered) {
            session.state().sent = session.state().sent + 1;
            delivered = send(link) ? session.confirm(link) : session.fail(peer::link_blocked);
        }
        report(call.delivery, delivered && session.await_acknowledgement());
    } else if (met && session.await_delivery()) {
        session.acknowledge(link);
        finish();
        hold(priorities, scratch, call.users, priority::holds_guess);
    } else {
        hold(priorities, scratch, 0, priority::yielded);
    }
    link.drain();
    link.close();
}

}  // namespace guess_exchange
