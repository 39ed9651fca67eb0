// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Chooses, for each key/value head of some layers and users, the tiles of the cache that a guess reads between its two
// ends, as a bitmap. Runs on both data movement cores, each with heads and buffers of its own.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "budget_cut.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/chosen_tiles.hpp"
#include "tt_kernels/common/kernels/chunk_split.hpp"

void kernel_main() {
    constexpr uint32_t cb_positions = get_named_compile_time_arg_val("cb_positions");
    constexpr uint32_t cb_masses = get_named_compile_time_arg_val("cb_masses");
    constexpr uint32_t cb_chosen = get_named_compile_time_arg_val("cb_chosen");
    constexpr uint32_t cb_near = get_named_compile_time_arg_val("cb_near");
    constexpr auto masses_args = ACCESSOR_ARGS(masses);
    constexpr auto chosen_args = ACCESSOR_ARGS(chosen);
    const attention::GuessRange guess{
        COMMON_ARG(guess_first), COMMON_ARG(guess_last), COMMON_ARG(guess_whole_tail) != 0};
    const uint32_t users = COMMON_ARG(users), kv_heads = COMMON_ARG(kv_heads),
                   tiles = COMMON_ARG(cache_tiles);

    const uint32_t positions = get_write_ptr(cb_positions), masses = get_write_ptr(cb_masses);
    const uint32_t chosen = get_write_ptr(cb_chosen), words = chosen_tiles::words_of(tiles);
    const auto cur_pos = TensorAccessor(ACCESSOR_ARGS(positions), COMMON_ARG(positions));
    noc_async_read(cur_pos.get_noc_addr(0), positions, users * sizeof(uint32_t));
    noc_async_read_barrier();

    // For each head: the addresses of its layer's masses and bitmaps, and its number among the heads of all users.
    const uint32_t heads = RUNTIME_ARG(heads);
    for (uint32_t i = 0; i < heads; ++i) {
        const auto place = [&](uint32_t word) {
            return get_arg_val<uint32_t>(RUNTIME_INDEX(places) + 3 * i + word);
        };
        const uint32_t item = place(2);
        const int32_t position = reinterpret_cast<volatile tt_l1_ptr int32_t*>(positions)[item / kv_heads];
        if (position < 0) {
            continue;
        }
        const uint32_t most = tiles * attention::tile_tokens;
        const uint32_t tokens = attention::min(static_cast<uint32_t>(position) + 1, most);
        const attention::Ends ends(tokens, guess);
        const uint32_t held = attention::tiles_of(tokens);
        noc_async_read(
            TensorAccessor(masses_args, place(0)).get_noc_addr(item), masses, held * sizeof(uint32_t));
        noc_async_read_barrier();
        volatile tt_l1_ptr uint32_t* bits = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(chosen);
        for (uint32_t word = 0; word < words; ++word) {
            bits[word] = 0;
        }
        budget::fill(
            reinterpret_cast<const uint32_t*>(masses), ends.first_end, ends.last_begin, held,
            COMMON_ARG(unread_part), bits, reinterpret_cast<uint32_t*>(get_write_ptr(cb_near)));
        (void)bits[words - 1];  // read back: all have reached L1
        noc_async_write(
            chosen, TensorAccessor(chosen_args, place(1)).get_noc_addr(item), words * sizeof(uint32_t));
        noc_async_write_barrier();
    }
}
