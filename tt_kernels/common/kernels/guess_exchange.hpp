// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A call of the exchange core (BRISC), the only one that talks to the peer, for every op that emits a guess. The
// sender's writes the guesses of all users straight into the peer's `exact` once all of them are here; the receiver's
// waits for that and acknowledges it. A receiver writes no other results: its layer goes on as soon as it has a guess.
// Each tells the other that it is in this call, and in which role (peer_session.hpp), so a sender writes only into a
// peer that waits for it, and neither runs more than one call ahead.
//
// The sender alone decides who holds the layer: it gives the layer away only with an acknowledged guess, and its
// HOLDS_EXACT outranks the receiver's HOLDS_GUESS. So a late or lost acknowledgement costs a hit, never agreement. A
// receiver without a guess holds nothing: its priorities become 0.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "fetch_control.hpp"
#include "peer_link.hpp"
#include "peer_session.hpp"
#include "priority.hpp"
#include "tile_masks.hpp"
#include "tile_rows.hpp"

#ifndef SGDC_UNGATED
#error "the exchange must be compiled with SGDC_UNGATED, or a rank that skips would leave its peer waiting"
#endif

namespace guess_exchange {

static_assert(PEER_MAX_WRITE >= tile_rows::tile_bytes);

// Sends parts of `count` tiles, `bytes` of each and one after another in L1 from `from`, to the starts of the peer's pages
// from `page` on. What a packet takes hardly depends on its bytes, so that as many parts share one as fit.
template <typename Accessor>
inline bool send_tiles(
    PeerLink& link, uint32_t from, uint32_t bytes, const Accessor& tensor, uint32_t page, uint32_t count) {
    const uint32_t fit =
        PEER_MAX_WRITE / bytes < PeerLink::max_pieces ? PEER_MAX_WRITE / bytes : PeerLink::max_pieces;
    uint64_t to[PeerLink::max_pieces];
    for (const uint32_t end = page + count; page < end;) {
        uint32_t parts = 0;
        for (; parts < fit && page < end; ++parts, ++page) {
            to[parts] = link.page_address(tensor, page, 0);
        }
        if (!link.scatter(from, to, parts, bytes)) {
            return false;
        }
        from += parts * bytes;
    }
    return true;
}

// A row of priorities in `scratch`: `value` for each of `users`, 0 for the others.
inline void fill_row(uint32_t scratch, uint32_t users, uint32_t value) {
    tile_masks::fill(scratch, priority::row_bytes, priority::yielded);
    volatile tt_l1_ptr uint32_t* held = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch);
    for (uint32_t user = 0; users >> user != 0; ++user) {
        if ((users >> user & 1) != 0) {
            held[user] = value;
        }
    }
}

inline void report(uint64_t delivery, bool delivered) {
    noc_semaphore_inc(delivery, delivered ? priority::guess_delivered : priority::guess_undelivered);
    noc_async_atomic_barrier();
}

// One call. await_guesses(words) returns once this rank's guesses are complete, given the control page; send(link,
// peer_exact) writes them to the peer's tensor and returns whether the link took them.
template <typename Await, typename Send>
inline void run(Await await_guesses, Send send) {
    const uint64_t timeout = bounded::cycles_arg(RUNTIME_INDEX(timeout));
    constexpr uint32_t deciding_core = RUNTIME_INDEX(deciding_core);
    // The semaphore by which the core that decides hears whether the peer has the guess.
    const uint64_t delivery = get_noc_addr(
        get_arg_val<uint32_t>(deciding_core), get_arg_val<uint32_t>(deciding_core + 1),
        get_semaphore(config::sem_delivery));
    constexpr auto norm_args = ACCESSOR_ARGS(norm);
    const auto peer_exact = TensorAccessor(ACCESSOR_ARGS(output), RUNTIME_ARG(peer_exact));
    const auto priorities = TensorAccessor(ACCESSOR_ARGS(priority), RUNTIME_ARG(priority));
    const uint32_t page = get_write_ptr(config::cb_control), scratch = get_write_ptr(config::cb_scratch);
    control::fetch(page);
    const auto* words = reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(page);
    const bool sends = !words[control::receiving];
    const uint32_t users = control::active_users(words);
    const auto hold_nothing = [&] {
        fill_row(scratch, 0, priority::yielded);
        noc_async_write(scratch, priorities.get_noc_addr(0), priority::row_bytes);
        noc_async_write_barrier();
    };

    peer::Session session(RUNTIME_ARG(state), timeout);
    if (!session.usable() || (words[control::alone] && !session.fail(peer::unsynchronised))) {
        if (sends) {
            report(delivery, false);
        } else {
            hold_nothing();
        }
        return;
    }
    uint32_t link_args = RUNTIME_INDEX(link);
    PeerLink link(link_args, timeout);
    const peer::Role role = sends ? peer::sender : peer::receiver;
    const bool met = session.arrive_as(link, role, users) && session.await_opposite();
    if (!sends) {  // while the peer makes the guess
        // Nothing is measured on a receiver.
        for (const uint32_t numbers : {RUNTIME_ARG(distance_sq), RUNTIME_ARG(norm_sq)}) {
            const uint64_t to = TensorAccessor(norm_args, numbers).get_noc_addr(0);
            noc_async_write(MEM_ZEROS_BASE, to, config::users() * sizeof(uint32_t));
        }
        fill_row(scratch, users, priority::holds_guess);
    }
    if (sends) {
        await_guesses(words);
        bool delivered = met;
        if (delivered) {
            session.state().sent = session.state().sent + 1;
            delivered = send(link, peer_exact) ? session.confirm(link) : session.fail(peer::link_blocked);
        }
        report(delivery, delivered && session.await_acknowledgement());
    } else if (met && session.await_delivery()) {
        noc_async_write(scratch, priorities.get_noc_addr(0), priority::row_bytes);
        session.acknowledge(link);
        noc_async_write_barrier();
    } else {
        hold_nothing();
    }
    link.drain();
    link.close();
}

}  // namespace guess_exchange
