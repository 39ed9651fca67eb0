// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads the users' rows of cosines and sines, a page each, into tiles. Other rows of them hold what L1 held.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace {

constexpr uint32_t tiles = get_named_compile_time_arg_val("tiles");
constexpr uint32_t users = get_named_compile_time_arg_val("users");

template <typename Accessor>
void read_rows(const Accessor& angles, uint32_t cb) {
    cb_reserve_back(cb, tiles);
    for (uint32_t user = 0; user < users; ++user) {
        uint64_t from = angles.get_noc_addr(user);
        uint32_t to = get_write_ptr(cb);
        for (uint32_t tile = 0; tile < tiles; ++tile, to += tile_rows::tile_bytes) {
            tile_rows::for_each_piece(user, user + 1, [&](uint32_t offset, uint32_t bytes) {
                noc_async_read(from, to + offset, bytes);
                from += bytes;
            });
        }
    }
}

}  // namespace

void kernel_main() {
    constexpr uint32_t cb_cos = get_named_compile_time_arg_val("cb_cos");
    constexpr uint32_t cb_sin = get_named_compile_time_arg_val("cb_sin");
    read_rows(TensorAccessor(ACCESSOR_ARGS(cos), COMMON_ARG(cos)), cb_cos);
    read_rows(TensorAccessor(ACCESSOR_ARGS(sin), COMMON_ARG(sin)), cb_sin);
    noc_async_read_barrier();
    cb_push_back(cb_cos, tiles);
    cb_push_back(cb_sin, tiles);
}
