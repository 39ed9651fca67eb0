// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What reader and writer of the exchange agree on.

#pragma once

#include <cstdint>

#ifndef SGDC_UNGATED
#error "the exchange must be compiled with SGDC_UNGATED, or a rank that skips would leave its peer waiting"
#endif

namespace exchange {

// The writer's decision, in a semaphore that starts at 0.
constexpr uint32_t receive = 1;
constexpr uint32_t send = 2;

// Pieces read before one barrier; the buffer holds two batches. A tensor's last batch takes the space of a whole one,
// so that none wraps around the buffer's end.
constexpr uint32_t batch = 8;
constexpr uint32_t pieces_in_buffer = 2 * batch;

// The first `used_bytes` of a page alone are exchanged, in pieces that follow each other in the buffer.
constexpr uint32_t stride(uint32_t used_bytes, uint32_t piece_bytes) {
    return used_bytes < piece_bytes ? used_bytes : piece_bytes;
}

constexpr uint32_t piece_size(uint32_t used_bytes, uint32_t stride, uint32_t piece) {
    const uint32_t left = used_bytes - piece * stride;
    return left < stride ? left : stride;
}

}  // namespace exchange
