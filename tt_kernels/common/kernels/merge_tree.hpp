// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Which worker sends its partial result to whom, so that worker 0 has merged all `workers` after ceil(log2(workers))
// steps. At level s a worker that is a multiple of 2^(s + 1) receives from the one 2^s after it,
// which has then merged those of [worker + 2^s, worker + 2^(s + 1)). The order is fixed: results do not depend on
// timing. Every RISC-V derives it from the numbers alone; tt_kernels/common/merge_tree.py mirrors it on the host.
//
// Parts may be empty. A worker that has nothing, neither its own nor received, sends nothing, and its receiver knows.

#pragma once

#include <cstdint>

namespace merge_tree {

// Steps until worker 0 has everything: also the number of slots it needs to receive one result per level.
constexpr uint32_t levels(uint32_t workers) {
    uint32_t found = 0;
    while (1u << found < workers) {
        ++found;
    }
    return found;
}

// The level a worker sends at, and the worker it sends to. Worker 0 does not send.
constexpr uint32_t level_of(uint32_t worker) {
    uint32_t level = 0;
    while (level < 31 && (worker >> level & 1) == 0) {
        ++level;
    }
    return level;
}
constexpr uint32_t parent_of(uint32_t worker) { return worker & (worker - 1); }

// The worker that `worker` receives from at `level`, if there is one.
constexpr uint32_t child_of(uint32_t worker, uint32_t level) { return worker + (1u << level); }

// Bit s of the result: whether `worker` receives something at level s. has(w): whether worker w has a part of its own.
template <typename Has>
inline uint32_t sources_of(uint32_t worker, uint32_t workers, Has has) {
    uint32_t found = 0;
    for (uint32_t level = 0; child_of(worker, level) < workers && (worker >> level & 1) == 0; ++level) {
        const uint32_t child = child_of(worker, level), end = child_of(child, level);
        for (uint32_t other = child; other < end && other < workers; ++other) {
            if (has(other)) {
                found |= 1u << level;
                break;
            }
        }
    }
    return found;
}

// The same where workers [begin, end) have parts, and no others. Not inlined, as a kernel's code must stay small.
inline __attribute__((noinline)) uint32_t sources_among(uint32_t worker, uint32_t begin, uint32_t end) {
    uint32_t found = 0;
    for (uint32_t step = 1; (worker & step) == 0 && worker + step < end; step *= 2) {
        const uint32_t last = worker + 2 * step < end ? worker + 2 * step : end;
        found |= last > begin ? step : 0;
    }
    return found;
}

}  // namespace merge_tree
