// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Writes each user's row of this core's rotated head to that head's row of the user's tiles.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace {

constexpr uint32_t cb_packed = get_named_compile_time_arg_val("cb_packed");
constexpr uint32_t tiles = get_named_compile_time_arg_val("tiles");
constexpr uint32_t users = get_named_compile_time_arg_val("users");

// The left part of a row in its tile.
uint32_t offset_of(uint32_t row) {
    constexpr uint32_t below = tile_rows::faces_across * tile_rows::face_bytes;
    return row / tile_rows::face_rows * below + row % tile_rows::face_rows * tile_rows::row_bytes;
}

}  // namespace

void kernel_main() {
    const auto result = TensorAccessor(ACCESSOR_ARGS(result), COMMON_ARG(result), tile_rows::tile_bytes);
    const uint32_t to = offset_of(RUNTIME_ARG(head));
    cb_wait_front(cb_packed, tiles);
    const uint32_t from = get_read_ptr(cb_packed);
    for (uint32_t user = 0; user < users; ++user) {
        const uint32_t row = from + offset_of(user);
        for (uint32_t tile = 0; tile < tiles; ++tile) {
            const uint32_t source = row + tile * tile_rows::tile_bytes;
            const uint64_t target = result.get_noc_addr(user * tiles + tile) + to;
            for (uint32_t face = 0; face < tile_rows::faces_across; ++face) {
                const uint32_t at = face * tile_rows::face_bytes;
                noc_async_write(source + at, target + at, tile_rows::row_bytes);
            }
        }
    }
    noc_async_write_barrier();
}
