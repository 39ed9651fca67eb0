// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// How rows of values lie in their circular buffer: where the destination registers hold a head's output and its row sums
// at once, each row has a tile of ones behind its values, so that one multiplication by a block makes both.

#pragma once

#include <cstdint>

namespace value_rows {

constexpr uint32_t registers = 4;  // destination tiles, float32 in half-sync mode

template <uint32_t head_tiles>
constexpr bool with_ones = head_tiles < registers;

// Tiles of a row.
template <uint32_t head_tiles>
constexpr uint32_t stride = head_tiles + (with_ones<head_tiles> ? 1 : 0);

// Tiles of ones that the compute kernel waits for: a bfloat16 one, and a sign that those of all rows are there.
template <uint32_t head_tiles>
constexpr uint32_t pushes_of_ones = with_ones<head_tiles> ? 2 : 1;

}  // namespace value_rows
