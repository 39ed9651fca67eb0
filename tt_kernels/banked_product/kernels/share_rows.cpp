// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Brings blocks of the rows to all cores, then writes this core's columns of the result. The cores take turns: each reads
// its next block ahead of time and multicasts it when all cores have announced room for it. A core announces one block
// beyond the one that it waits for, so blocks of two cores may be on their way, each to a slot of its own.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"

namespace {

constexpr uint32_t cb_rows = get_named_compile_time_arg_val("cb_rows");
constexpr uint32_t cb_source = get_named_compile_time_arg_val("cb_source");
constexpr uint32_t cb_result = get_named_compile_time_arg_val("cb_result");
constexpr uint32_t blocks = get_named_compile_time_arg_val("blocks");
constexpr uint32_t inner = get_named_compile_time_arg_val("inner");
constexpr uint32_t columns = get_named_compile_time_arg_val("columns");
constexpr uint32_t high = get_named_compile_time_arg_val("high");
constexpr uint32_t outputs = get_named_compile_time_arg_val("outputs");
constexpr uint32_t cores = get_named_compile_time_arg_val("cores");
constexpr uint32_t slots = get_named_compile_time_arg_val("row_slots");
constexpr uint32_t sem_ready = get_named_compile_time_arg_val("sem_ready");
constexpr uint32_t sem_one = get_named_compile_time_arg_val("sem_one");
constexpr uint32_t sem_arrived = get_named_compile_time_arg_val("sem_arrived");  // the first of a slot each
constexpr uint32_t tile_bytes = get_tile_size(cb_rows);
constexpr uint32_t block_tiles = high * inner;
constexpr uint32_t block_bytes = block_tiles * tile_bytes;

volatile tt_l1_ptr uint32_t* word(uint32_t semaphore) {
    return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(semaphore));
}

template <typename Accessor>
void fetch(const Accessor& rows, uint32_t block, uint32_t to) {
    for (uint32_t row = 0; row < high; ++row) {
        for (uint32_t k = 0; k < inner; ++k, to += tile_bytes) {
            noc_async_read(rows.get_noc_addr((row * blocks + block) * inner + k), to, tile_bytes);
        }
    }
}

}  // namespace

void kernel_main() {
    const uint32_t index = RUNTIME_ARG(index);
    const uint32_t first = RUNTIME_ARG(first);
    const uint32_t count = RUNTIME_ARG(count);
    const auto rows = TensorAccessor(ACCESSOR_ARGS(rows), COMMON_ARG(rows), tile_bytes);
    const auto result = TensorAccessor(ACCESSOR_ARGS(result), COMMON_ARG(result), tile_bytes);
    const uint32_t source = get_write_ptr(cb_source);
    const uint32_t buffer = get_write_ptr(cb_rows);
    const uint32_t ready = get_semaphore(sem_ready);

    const auto to_all = [](uint32_t address) {
        return get_noc_multicast_addr(
            COMMON_ARG(start_x), COMMON_ARG(start_y), COMMON_ARG(end_x), COMMON_ARG(end_y), address);
    };
    // `waiting` blocks before it have room but have not arrived.
    const auto announce = [&](uint32_t block, uint32_t waiting) {
        cb_reserve_back(cb_rows, (waiting + 1) * block_tiles);
        noc_semaphore_set(word(sem_arrived + block % slots), 0);
        const uint32_t sender = get_common_arg_val<uint32_t>(COMMON_INDEX(places) + block % cores);
        noc_semaphore_inc(get_noc_addr(sender & 0xffff, sender >> 16, ready), 1);
    };

    if (index < blocks) {
        fetch(rows, index, source);
    }
    announce(0, 0);
    uint32_t sent = 0;
    for (uint32_t block = 0; block < blocks; ++block) {
        if (block + 1 < blocks) {
            announce(block + 1, 1);
        }
        const uint32_t slot = block % slots;
        if (block % cores == index) {
            noc_async_read_barrier();
            noc_semaphore_wait_min(word(sem_ready), cores * ++sent);
            const uint32_t to = buffer + slot * block_bytes;
            if constexpr (cores == 1) {
                noc_async_write(source, get_noc_addr(to), block_bytes);
                noc_async_write_barrier();
                noc_semaphore_set(word(sem_arrived + slot), 1);
            } else {
                noc_async_write_multicast_loopback_src(source, to_all(to), block_bytes, cores);
                // In order behind the block: the same NoC, channel and destinations.
                noc_semaphore_set_multicast_loopback_src(
                    get_semaphore(sem_one), to_all(get_semaphore(sem_arrived + slot)), cores);
            }
            if (block + cores < blocks) {
                noc_async_write_barrier();
                fetch(rows, block + cores, source);
            }
        }
        noc_semaphore_wait(word(sem_arrived + slot), 1);
        cb_push_back(cb_rows, block_tiles);
    }

    if (count > 0) {
        cb_wait_front(cb_result, high * columns);
        uint32_t from = get_read_ptr(cb_result);
        for (uint32_t row = 0; row < high; ++row, from += columns * tile_bytes) {
            for (uint32_t column = 0; column < count; ++column) {
                noc_async_write(
                    from + column * tile_bytes, result.get_noc_addr(row * outputs + first + column),
                    tile_bytes);
            }
        }
    }
    noc_async_write_barrier();
    noc_async_atomic_barrier();
}
