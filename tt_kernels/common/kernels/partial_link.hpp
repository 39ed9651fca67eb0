// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// How the workers of a head pass partial results to each other along merge_tree.hpp, for data movement kernels. Compute
// kernels merge them: partial_merge.hpp.
//
// A worker has a slot for each of its senders, in circular buffers at the same address on all of them; a slot has a partial
// result for each of the config::query_tiles() of the op's config.hpp. Compute pops all slots at once, so slot s always
// starts s slots after the buffer's start. Two semaphores, both starting at 0:
//   arrived: bit s flips with every partial result that arrives in slot s; there is one at a time.
//   credit: counts this worker's partial results that its receiver has finished with.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "attention_config.hpp"
#include "merge_tree.hpp"
#include "tile_rows.hpp"

namespace partial_link {

constexpr uint32_t float32_bytes = 2 * tile_rows::tile_bytes;

constexpr uint32_t gathered = config::cb_gathered, gathered_row_max = config::cb_gathered_row_max;
constexpr uint32_t tiles =
    config::partial_tiles;  // float32, per partial result; a slot has one for each query tile

inline volatile tt_l1_ptr uint32_t* word(uint32_t address) {
    return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(address);
}

// For the kernel that pushes what has arrived to compute.
class Receiver {
public:
    Receiver() :
        slots_(merge_tree::slots(config::workers())), arrived_(word(get_semaphore(config::sem_arrived))) {}

    // Opens the slots and pushes them as they are filled. from: merge_tree::sources_among() of this head.
    // credit_of(distance): the NoC address of the semaphore on the worker so far behind this one.
    template <typename CreditOf>
    void receive(uint32_t from, CreditOf credit_of) {
        if (from == 0) {
            return;
        }
        cb_reserve_back(gathered, slots_ * config::query_tiles() * tiles);
        cb_reserve_back(gathered_row_max, slots_ * config::query_tiles());
        for (uint32_t slot = 0; slot < slots_; ++slot) {
            if (used_ >> slot & 1) {
                noc_semaphore_inc(credit_of(merge_tree::distance_of(slot)), 1);
            }
        }
        used_ = from;
        expected_ ^= from;
        for (uint32_t slot = 0; slot < slots_; ++slot) {
            while ((from & (*arrived_ ^ expected_)) >> slot & 1) {
                invalidate_l1_cache();
            }
            cb_push_back(gathered, config::query_tiles() * tiles);
            cb_push_back(gathered_row_max, config::query_tiles());
        }
    }

private:
    uint32_t slots_;
    volatile tt_l1_ptr uint32_t* arrived_;
    uint32_t expected_ = 0;  // of `arrived`, when all of this head are there
    uint32_t used_ = 0;      // slots whose senders have no credit for them yet
};

// For the kernel that sends this worker's own partial results.
class Sender {
public:
    // x, y: the worker that receives them.
    Sender(uint32_t worker, uint32_t x, uint32_t y) :
        slot_(merge_tree::slot_of(worker)),
        to_(get_noc_addr(x, y, 0)),
        arrived_(get_semaphore(config::sem_arrived)),
        credit_(word(get_semaphore(config::sem_credit))) {}

    // Sends rows [begin, end) of every partial result of a head from the addresses that compute passes, page by page,
    // in cb_handover (partial_merge::hand_over).
    void send(uint32_t begin, uint32_t end) {
        constexpr uint32_t handover = config::cb_handover;
        for (uint32_t partial = 0; partial < config::query_tiles(); ++partial) {
            cb_wait_front(handover, 1);
            const uint32_t page = get_read_ptr(handover);
            if (partial == 0) {
                noc_semaphore_wait_min(credit_, sent_++);
            }
            send_partial(partial, word(page)[0], word(page)[1], begin, end);
            noc_async_write_barrier();
            cb_pop_front(handover, 1);
        }
        const uint32_t bit = 1u << slot_;
        noc_semaphore_inc(to_ + arrived_, sent_ % 2 == 1 ? bit : 0u - bit);
    }

private:
    void send_partial(
        uint32_t partial, uint32_t state, uint32_t row_max, uint32_t begin, uint32_t end) const {
        const uint32_t slot = slot_ * config::query_tiles() + partial;
        // This kernel pushes nothing into these: its pointers stay at the start.
        const uint64_t to = to_ + get_write_ptr(gathered) + slot * tiles * float32_bytes;
        const uint64_t row_max_to = to_ + get_write_ptr(gathered_row_max) + slot * tile_rows::tile_bytes;
        tile_rows::for_each_piece(begin, end, [&](uint32_t offset, uint32_t bytes) {
            noc_async_write_one_packet_set_state(to, 2 * bytes);
            for (uint32_t at = 2 * offset; at < tiles * float32_bytes; at += float32_bytes) {
                noc_async_write_one_packet_with_state(state + at, static_cast<uint32_t>(to) + at);
            }
            if (offset / tile_rows::face_bytes % tile_rows::faces_across == 0) {  // only column 0 counts
                noc_async_write_one_packet(row_max + offset, row_max_to + offset, bytes);
            }
        });
    }

    uint32_t slot_;
    uint64_t to_;
    uint32_t arrived_;
    volatile tt_l1_ptr uint32_t* credit_;
    uint32_t sent_ = 0;
};

}  // namespace partial_link
