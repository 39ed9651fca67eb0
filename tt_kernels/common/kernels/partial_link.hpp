// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// How the workers of a head pass partial results to each other along merge_tree.hpp, for data movement kernels. Compute
// kernels merge them: partial_merge.hpp.
//
// A worker has a slot for each level, in circular buffers at the same address on all of them; compute pops all of them
// at once, so slot s always starts s slots after the buffer's start. Two semaphores, both starting at 0:
//   arrived: bit s flips with every partial result that arrives at level s; there is one at a time.
//   credit: counts this worker's partial results that its receiver has finished with.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "merge_tree.hpp"
#include "tile_rows.hpp"

namespace partial_link {

constexpr uint32_t float32_bytes = 2 * tile_rows::tile_bytes;

// The slots of a group's workers. tiles: float32 tiles per partial result. partials: partial results per slot, one per
// query tile.
struct Slots {
    uint32_t gathered;
    uint32_t gathered_row_max;
    uint32_t levels;
    uint32_t tiles;
    uint32_t partials = 1;

    uint32_t tiles_per_slot() const { return partials * tiles; }
};

inline volatile tt_l1_ptr uint32_t* word(uint32_t address) {
    return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(address);
}

// For the kernel that pushes what has arrived to compute.
class Receiver {
public:
    // arrived: L1 address of the semaphore.
    Receiver(const Slots& slots, uint32_t arrived) : slots_(slots), arrived_(word(arrived)) {}

    // Opens the slots and pushes them as they are filled. from: merge_tree::sources_of this head. credit_of(level): the
    // NoC address of the semaphore on the worker that sends at that level.
    template <typename CreditOf>
    void receive(uint32_t from, CreditOf credit_of) {
        if (from == 0) {
            return;
        }
        cb_reserve_back(slots_.gathered, slots_.levels * slots_.tiles_per_slot());
        cb_reserve_back(slots_.gathered_row_max, slots_.levels * slots_.partials);
        for (uint32_t level = 0; level < slots_.levels; ++level) {
            if (used_ >> level & 1) {
                noc_semaphore_inc(credit_of(level), 1);
            }
        }
        used_ = from;
        expected_ ^= from;
        for (uint32_t level = 0; level < slots_.levels; ++level) {
            while ((from & (*arrived_ ^ expected_)) >> level & 1) {
                invalidate_l1_cache();
            }
            cb_push_back(slots_.gathered, slots_.tiles_per_slot());
            cb_push_back(slots_.gathered_row_max, slots_.partials);
        }
    }

private:
    Slots slots_;
    volatile tt_l1_ptr uint32_t* arrived_;
    uint32_t expected_ = 0;  // of `arrived`, when all of this head are there
    uint32_t used_ = 0;      // slots whose senders have no credit for them yet
};

// For the kernel that sends this worker's own partial results.
class Sender {
public:
    // x, y: the worker that receives them. arrived, credit: L1 addresses of the semaphores, the same on all workers.
    Sender(const Slots& slots, uint32_t worker, uint32_t x, uint32_t y, uint32_t arrived, uint32_t credit) :
        slots_(slots),
        level_(merge_tree::level_of(worker)),
        to_(get_noc_addr(x, y, 0)),
        arrived_(arrived),
        credit_(word(credit)) {}

    // Sends rows [begin, end) of every partial result of a head from the addresses that compute passes, page by page,
    // in `handover` (partial_merge::hand_over).
    void send(uint32_t handover, uint32_t begin, uint32_t end) {
        for (uint32_t partial = 0; partial < slots_.partials; ++partial) {
            cb_wait_front(handover, 1);
            const uint32_t page = get_read_ptr(handover);
            if (partial == 0) {
                noc_semaphore_wait_min(credit_, sent_++);
            }
            send_partial(partial, word(page)[0], word(page)[1], begin, end);
            noc_async_write_barrier();
            cb_pop_front(handover, 1);
        }
        const uint32_t bit = 1u << level_;
        noc_semaphore_inc(to_ + arrived_, sent_ % 2 == 1 ? bit : 0u - bit);
    }

private:
    void send_partial(
        uint32_t partial, uint32_t state, uint32_t row_max, uint32_t begin, uint32_t end) const {
        const uint32_t slot = level_ * slots_.partials + partial;
        // This kernel pushes nothing into these: its pointers stay at the start.
        const uint64_t to = to_ + get_write_ptr(slots_.gathered) + slot * slots_.tiles * float32_bytes;
        const uint64_t row_max_to =
            to_ + get_write_ptr(slots_.gathered_row_max) + slot * tile_rows::tile_bytes;
        tile_rows::for_each_piece(begin, end, [&](uint32_t offset, uint32_t bytes) {
            for (uint32_t at = 2 * offset; at < slots_.tiles * float32_bytes; at += float32_bytes) {
                noc_async_write<2 * tile_rows::face_bytes>(state + at, to + at, 2 * bytes);
            }
            if (offset / tile_rows::face_bytes % tile_rows::faces_across == 0) {  // only column 0 counts
                noc_async_write<tile_rows::face_bytes>(row_max + offset, row_max_to + offset, bytes);
            }
        });
    }

    Slots slots_;
    uint32_t level_;
    uint64_t to_;
    uint32_t arrived_;
    volatile tt_l1_ptr uint32_t* credit_;
    uint32_t sent_ = 0;
};

}  // namespace partial_link
