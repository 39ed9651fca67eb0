// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// One core reads a tile per round and multicasts it to the others, which answer by semaphore. Every core writes what it
// has to a page of its own. Runs on either data-movement core and either NoC.
//
// Compile-time arguments: rounds, cores, bytes of a tile, whether the sender is a recipient too, accessors of the
// input and the output. Runtime arguments: this core's number, addresses of input and output, semaphores "ready" and
// "valid", sender's x and y, corners of the rectangle in the order this NoC travels.

#include "api/dataflow/dataflow_api.h"

void kernel_main() {
    constexpr uint32_t rounds = get_compile_time_arg_val(0);
    constexpr uint32_t cores = get_compile_time_arg_val(1);
    constexpr uint32_t tile_bytes = get_compile_time_arg_val(2);
    constexpr bool includes_sender = get_compile_time_arg_val(3);
    constexpr auto input_args = TensorAccessorArgs<4>();
    constexpr auto output_args = TensorAccessorArgs<input_args.next_compile_time_args_offset()>();

    const uint32_t core = get_arg_val<uint32_t>(0);
    const auto input = TensorAccessor(input_args, get_arg_val<uint32_t>(1), tile_bytes);
    const auto output = TensorAccessor(output_args, get_arg_val<uint32_t>(2), tile_bytes);
    const uint32_t ready = get_semaphore(get_arg_val<uint32_t>(3));
    const uint32_t valid = get_semaphore(get_arg_val<uint32_t>(4));
    const uint32_t sender_x = get_arg_val<uint32_t>(5), sender_y = get_arg_val<uint32_t>(6);
    const uint32_t start_x = get_arg_val<uint32_t>(7), start_y = get_arg_val<uint32_t>(8);
    const uint32_t end_x = get_arg_val<uint32_t>(9), end_y = get_arg_val<uint32_t>(10);

    // The sender reads into the first page and sends to the second, so that loopback can be seen.
    const uint32_t source = get_write_ptr(tt::CBIndex::c_0);
    const uint32_t received = source + tile_bytes;
    volatile tt_l1_ptr uint32_t* ready_word = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(ready);
    volatile tt_l1_ptr uint32_t* valid_word = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(valid);

    for (uint32_t round = 0; round < rounds; ++round) {
        if (core == 0) {
            noc_async_read(input.get_noc_addr(round), source, tile_bytes);
            noc_async_read_barrier();
            noc_semaphore_wait(ready_word, cores - 1);
            noc_semaphore_set(ready_word, 0);
            const uint64_t tiles = get_noc_multicast_addr(start_x, start_y, end_x, end_y, received);
            const uint64_t flags = get_noc_multicast_addr(start_x, start_y, end_x, end_y, valid);
            noc_semaphore_set(valid_word, round + 1);
            if constexpr (includes_sender) {
                noc_async_write_multicast_loopback_src(source, tiles, tile_bytes, cores);
                noc_async_write_barrier();
                noc_semaphore_set_multicast_loopback_src(valid, flags, cores);
            } else {
                noc_async_write_multicast(source, tiles, tile_bytes, cores - 1);
                noc_async_write_barrier();
                noc_semaphore_set_multicast(valid, flags, cores - 1);
            }
            noc_async_write_barrier();
        } else {
            noc_semaphore_inc(get_noc_addr(sender_x, sender_y, ready), 1);
            noc_semaphore_wait(valid_word, round + 1);
        }
        const uint32_t mine = core == 0 && !includes_sender ? source : received;
        noc_async_write(mine, output.get_noc_addr(round * cores + core), tile_bytes);
        noc_async_write_barrier();
    }
    noc_async_atomic_barrier();
}
