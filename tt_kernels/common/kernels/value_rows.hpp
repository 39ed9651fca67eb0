// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The layout of rows of values in their circular buffer: if the destination registers hold a head's output and its row
// sums at once, a tile of ones follows the values of each row, so that one block multiplication makes both.

#pragma once

#include <cstdint>

namespace value_rows {

constexpr uint32_t registers = 4;  // destination tiles, float32 in half-sync mode

template <uint32_t head_tiles>
constexpr bool with_ones = head_tiles < registers;

// Tiles of a row.
template <uint32_t head_tiles>
constexpr uint32_t stride = head_tiles + (with_ones<head_tiles> ? 1 : 0);

// Tiles of ones that the compute kernel waits for: a bfloat16 one, and a signal that those of all rows are there.
template <uint32_t head_tiles>
constexpr uint32_t pushes_of_ones = with_ones<head_tiles> ? 2 : 1;

}  // namespace value_rows
