// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The exchange core (BRISC), the only one that talks to the peer. The sender's writes the guesses of all users straight
// into the peer's `exact` once all heads' rows are here; the receiver's waits for that, acknowledges it and writes the
// outputs that its idle cores do not. Each tells the other that it is in this call, and in which role
// (common/kernels/peer_session.hpp), so a sender writes only into a peer that waits for it, and neither runs more than
// one call ahead.
//
// The sender alone decides who holds the layer: it gives the layer away only with an acknowledged guess, and its
// HOLDS_EXACT outranks the receiver's HOLDS_GUESS. So a late or lost acknowledgement costs a hit, never agreement. A
// receiver without a guess holds nothing: its priorities become 0.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "control.hpp"
#include "fetch_control.hpp"
#include "tt_kernels/common/kernels/peer_link.hpp"
#include "tt_kernels/common/kernels/peer_session.hpp"
#include "tt_kernels/common/kernels/priority.hpp"
#include "tt_kernels/common/kernels/tile_masks.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"
#include "unused_rows.hpp"

#ifndef SGDC_UNGATED
#error "the exchange must be compiled with SGDC_UNGATED, or a rank that skips would leave its peer waiting"
#endif

namespace {

inline uint32_t tiles() { return config::users() * config::head_tiles; }
constexpr uint32_t pieces = (tile_rows::tile_bytes + PEER_MAX_WRITE - 1) / PEER_MAX_WRITE;
constexpr uint32_t piece_bytes = tile_rows::tile_bytes / pieces;
static_assert(pieces * piece_bytes == tile_rows::tile_bytes);

void wait_for_heads(const volatile tt_l1_ptr uint32_t* words, uint32_t base) {
    unused_rows::clear(base);
    uint32_t heads = 0;
    for (uint32_t user = 0; user < config::users(); ++user) {
        if (words[control::first_tokens + user] == 0) {
            unused_rows::clear_user(base, user);
        } else {
            heads += config::kv_heads();
        }
    }
    noc_async_read_barrier();
    // Cores of the same program: they always come.
    noc_semaphore_wait_min(
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(config::sem_outgoing)), heads);
}

// Tells the output core, whose decision waits for it.
void report(uint64_t delivery, bool delivered) {
    noc_semaphore_inc(delivery, delivered ? config::guess_delivered : config::guess_undelivered);
    noc_async_atomic_barrier();
}

template <typename Accessor>
bool send_guesses(PeerLink& link, uint32_t base, const Accessor& peer_exact) {
    for (uint32_t tile = 0; tile < tiles(); ++tile) {
        for (uint32_t piece = 0; piece < pieces; ++piece) {
            const uint32_t offset = piece * piece_bytes;
            const uint32_t from = base + tile * tile_rows::tile_bytes + offset;
            if (!link.write(from, link.page_address(peer_exact, tile, offset), piece_bytes)) {
                return false;
            }
        }
    }
    return true;
}

// Sets `priorities` to say that this rank holds nothing.
template <typename Priority>
void hold_nothing(const Priority& priorities) {
    const uint32_t scratch = get_write_ptr(config::cb_scratch);
    tile_masks::fill(scratch, priority::row_bytes, priority::yielded);
    noc_async_write(scratch, priorities.get_noc_addr(0), priority::row_bytes);
    noc_async_write_barrier();
}

// Writes the receiver's outputs: the guess that arrived in `exact` is its guess too; nothing is measured, so distances
// and norms are 0.
template <typename Output, typename Norm, typename Priority>
void finish_receiver(
    const volatile tt_l1_ptr uint32_t* words,
    uint32_t base,
    const Output& exact,
    const Output& guess,
    const Norm& distances,
    const Norm& norms,
    const Priority& priorities) {
    for (uint32_t tile = 0; tile < tiles(); ++tile) {
        noc_async_read_page(tile, exact, base + tile * tile_rows::tile_bytes);
    }
    noc_async_read_barrier();
    for (uint32_t tile = 0; tile < tiles(); ++tile) {
        noc_async_write_page(tile, guess, base + tile * tile_rows::tile_bytes);
    }
    const uint32_t scratch = get_write_ptr(config::cb_scratch);
    tile_masks::fill(scratch, 2 * priority::row_bytes, 0);
    volatile tt_l1_ptr uint32_t* held =
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch + priority::row_bytes);
    for (uint32_t user = 0; user < config::users(); ++user) {
        if (words[control::first_tokens + user] > 0) {
            held[user] = priority::holds_guess;
        }
    }
    noc_async_write(scratch, distances.get_noc_addr(0), config::users() * sizeof(uint32_t));
    noc_async_write(scratch, norms.get_noc_addr(0), config::users() * sizeof(uint32_t));
    noc_async_write(scratch + priority::row_bytes, priorities.get_noc_addr(0), priority::row_bytes);
    noc_async_write_barrier();
}

}  // namespace

void kernel_main() {
    const uint64_t timeout = bounded::cycles_arg(RUNTIME_INDEX(timeout));
    constexpr uint32_t output_core = RUNTIME_INDEX(output_core);
    const uint64_t delivery = get_noc_addr(
        get_arg_val<uint32_t>(output_core), get_arg_val<uint32_t>(output_core + 1),
        get_semaphore(config::sem_delivery));
    constexpr auto output_args = ACCESSOR_ARGS(output);
    constexpr auto norm_args = ACCESSOR_ARGS(norm);
    const auto peer_exact = TensorAccessor(output_args, RUNTIME_ARG(peer_exact));
    const auto exact = TensorAccessor(output_args, RUNTIME_ARG(exact));
    const auto guess = TensorAccessor(output_args, RUNTIME_ARG(guess));
    const auto distances = TensorAccessor(norm_args, RUNTIME_ARG(distance_sq));
    const auto norms = TensorAccessor(norm_args, RUNTIME_ARG(norm_sq));
    const auto priorities = TensorAccessor(ACCESSOR_ARGS(priority), RUNTIME_ARG(priority));

    peer::Session session(RUNTIME_ARG(state), timeout);
    const uint32_t page = get_write_ptr(config::cb_control);
    control::fetch(control::sources_args(), page, ACCESSOR_ARGS(positions), ACCESSOR_ARGS(gathered));
    const volatile tt_l1_ptr uint32_t* words = reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(page);
    const bool sends = !words[control::receiving];
    if (!session.usable() || (words[control::alone] && !session.fail(peer::unsynchronised))) {
        if (sends) {
            report(delivery, false);
        } else {
            hold_nothing(priorities);
        }
        return;
    }

    const uint32_t base = get_write_ptr(config::cb_outgoing);
    uint32_t link_args = RUNTIME_INDEX(link);
    PeerLink link(link_args, timeout);
    const peer::Role role = sends ? peer::sender : peer::receiver;
    const bool met = session.arrive_as(link, role, control::active_users(words)) && session.await_opposite();
    if (sends) {
        wait_for_heads(words, base);
        bool delivered = met;
        if (delivered) {
            session.state().sent = session.state().sent + 1;
            delivered = send_guesses(link, base, peer_exact) ? session.confirm(link)
                                                             : session.fail(peer::link_blocked);
        }
        report(delivery, delivered && session.await_acknowledgement());
    } else if (met && session.await_delivery()) {
        session.acknowledge(link);
        finish_receiver(words, base, exact, guess, distances, norms, priorities);
    } else {
        hold_nothing(priorities);
    }
    link.drain();
    link.close();
}
