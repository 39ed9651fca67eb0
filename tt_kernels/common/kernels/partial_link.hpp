// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// How the workers of a head pass partial results to each other along merge_tree.hpp, for data movement kernels. Compute
// kernels merge them: partial_merge.hpp.
//
// A worker has a slot for each of its senders, in circular buffers at the same address on all of them: slot_buffers of the
// op's config.hpp; a slot has `partials` partial results. Compute pops all slots at once, so slot s always starts s slots
// after the buffer's start. Two semaphores, both starting at 0:
//   arrived: bit s flips with every partial result that arrives in slot s; there is one at a time.
//   credit: counts this worker's partial results that its receiver has finished with.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "attention_config.hpp"
#include "merge_tree.hpp"

namespace partial_link {

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
        for (const auto& buffer : config::slot_buffers) {
            cb_reserve_back(buffer.cb, slots_ * config::partials() * buffer.pages);
        }
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
            for (const auto& buffer : config::slot_buffers) {
                cb_push_back(buffer.cb, config::partials() * buffer.pages);
            }
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

    // Sends the partial results of a head, one after another. write(page, index, to) starts to write one to where `index`
    // partial results lie before it in the receiver's slots, at L1's start `to`; page: what compute passes in cb_handover
    // (partial_merge::hand_over). `arrived` follows the writes at once: they arrive in this order, since all go over the
    // same NoC in its virtual channel of writes (tt-metal's documents, "Ordering (NOC, CMD_BUF, VC)").
    template <typename Write>
    void send(Write write) {
        constexpr uint32_t handover = config::cb_handover;
        const uint32_t partials = config::partials(), bit = 1u << slot_;
        for (uint32_t partial = 0; partial < partials; ++partial) {
            cb_wait_front(handover, 1);
            if (partial == 0) {
                noc_semaphore_wait_min(credit_, sent_++);
            }
            write(word(get_read_ptr(handover)), slot_ * partials + partial, to_);
            if (partial + 1 == partials) {
                noc_semaphore_inc(to_ + arrived_, sent_ % 2 == 1 ? bit : 0u - bit);
            }
            noc_async_write_barrier();
            cb_pop_front(handover, 1);
        }
    }

private:
    uint32_t slot_;
    uint64_t to_;
    uint32_t arrived_;
    volatile tt_l1_ptr uint32_t* credit_;
    uint32_t sent_ = 0;
};

}  // namespace partial_link
