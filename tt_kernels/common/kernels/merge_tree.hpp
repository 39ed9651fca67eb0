// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Which worker sends its partial result to whom, so that worker 0 has merged all `workers` after ceil(log4(workers))
// levels. At level s a worker that is a multiple of 4^(s + 1) receives from the ones 4^s, 2 * 4^s and 3 * 4^s after it,
// each of which has then merged those of the 4^s workers from itself on. It merges them at once: a level takes little
// longer than with one sender, and there are half as many. The order is fixed: results do not depend on timing. Every
// RISC-V derives it from the numbers alone; tt_kernels/common/merge_tree.py mirrors it on the host.
//
// A worker has a slot for each of its senders, numbered from the nearest on, three a level.
//
// Parts may be empty. A worker that has nothing, neither its own nor received, sends nothing, and its receiver knows.

#pragma once

#include <cstdint>

namespace merge_tree {

constexpr uint32_t bits = 2, senders = (1u << bits) - 1;  // of a level

// What lies between a worker and the one that sends to its slot.
constexpr uint32_t distance_of(uint32_t slot) { return (slot % senders + 1) << slot / senders * bits; }

// The slots of worker 0, which has the most.
constexpr uint32_t slots(uint32_t workers) {
    uint32_t found = 0;
    while (distance_of(found) < workers) {
        ++found;
    }
    return found;
}

// The shift to a number's lowest digit in base 4 that is not 0; 30 for 0.
constexpr uint32_t lowest_digit(uint32_t worker) {
    uint32_t shift = 0;
    while (shift < 30 && (worker >> shift & senders) == 0) {
        shift += bits;
    }
    return shift;
}

// The worker that a worker sends to, and the slot there. Worker 0 does not send.
constexpr uint32_t parent_of(uint32_t worker) { return worker & ~(senders << lowest_digit(worker)); }
constexpr uint32_t slot_of(uint32_t worker) {
    const uint32_t shift = lowest_digit(worker);
    return shift / bits * senders + (worker >> shift & senders) - 1;
}

// Bit s of the result: whether `worker` receives something in slot s, where workers [begin, end) have parts of their own,
// and no others. Not inlined, as a kernel's code must stay small.
inline __attribute__((noinline)) uint32_t sources_among(uint32_t worker, uint32_t begin, uint32_t end) {
    uint32_t found = 0, bit = 1;
    for (uint32_t step = 1; (worker & senders * step) == 0; step <<= bits) {
        for (uint32_t other = worker + step; other <= worker + senders * step; other += step, bit <<= 1) {
            if (other >= end) {
                return found;
            }
            const uint32_t last = other + step < end ? other + step : end;
            found |= last > begin ? bit : 0;
        }
    }
    return found;
}

}  // namespace merge_tree
