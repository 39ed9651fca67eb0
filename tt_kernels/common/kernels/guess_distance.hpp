// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// ||guess - exact||^2 and ||exact||^2 over rows of head_tiles tiles, by the vector unit; for compute kernels.

#pragma once

#include <cstdint>

#include "online_softmax.hpp"
#include "register_rows.hpp"

namespace guess_distance {

// Pops head_tiles of `guess` and `exact`, bfloat16, and pushes a float32 tile to `numbers`, whose elements are named in
// guess_decision.hpp. Uses one set of registers; formats are set by the caller. The operands are bfloat16, so their
// difference is as exact as float32 can hold it.
template <uint32_t head_tiles>
inline void measure(
    uint32_t guess, uint32_t exact, uint32_t numbers, register_rows::Bands bands, uint32_t threshold_sq) {
    static_assert(head_tiles <= online_softmax::registers);
    copy_init(exact);
    cb_reserve_back(numbers, 1);
    tile_regs_acquire();
    cb_wait_front(guess, head_tiles);
    cb_wait_front(exact, head_tiles);
    for (uint32_t i = 0; i < head_tiles; ++i) {
        copy_tile(exact, i, i);
    }
    register_rows::hold_sum_of_squares<head_tiles>(bands);
    sub_init(guess, exact);
    for (uint32_t i = 0; i < head_tiles; ++i) {
        sub_tiles(guess, exact, i, i, i);
    }
    register_rows::sums_of_squares<head_tiles>(bands, threshold_sq);
    online_softmax::pack_registers(numbers, 0, 1);
    cb_push_back(numbers, 1);
    cb_pop_front(guess, head_tiles);
    cb_pop_front(exact, head_tiles);
}

}  // namespace guess_distance
