// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Online softmax whose row maxima stay those of the first chunk of keys, for jobs of one worker. A softmax does not
// depend on what its exponents are relative to, so nothing is ever rescaled: scores go from the matrix unit to the vector
// unit as they are, and the packer adds each chunk's output and row sums to the state in L1. The maxima come out of the
// same matmuls as the scores, as if queries had a further column of them and keys one of -1.
//
// Where later scores exceed those maxima by so much that a row sum passes `most` (e^66), the exponential may have been cut
// off. Such a job is noted, and done again after all others with maxima that rise.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "jobs.hpp"

namespace fixed_maxima {

constexpr uint32_t maxima = config::cb_fixed_maxima, minus_one = config::cb_minus_one;
constexpr uint32_t verdicts = config::cb_verdicts;

inline bool in_use() { return !config::speculate && config::workers() == 1; }

}  // namespace fixed_maxima

#if defined(COMPILE_FOR_TRISC)

#include "tt_kernels/common/kernels/online_softmax.hpp"

namespace fixed_maxima {

using online_softmax::head_tiles, online_softmax::query, online_softmax::keys, online_softmax::values,
    online_softmax::ones, online_softmax::weights, online_softmax::state;
using register_rows::Bands;

constexpr uint32_t most = (127 + 96) << 23;  // 2^96, the bits of a float32

// Column 0 of the tiles of `maxima` = the row maxima in the first `tiles` tiles of `row_max`, which have been waited for.
inline __attribute__((noinline)) void keep(
    [[maybe_unused]] uint32_t row_max, [[maybe_unused]] uint32_t tiles) {
    UNPACK(({
        uint32_t from = get_local_cb_interface(row_max).fifo_rd_ptr << 4;
        uint32_t to = get_local_cb_interface(maxima).fifo_rd_ptr << 4;
        for (uint32_t tile = 0; tile < tiles; ++tile) {
            for (uint32_t row = 0; row < tile_rows::tile_height; ++row) {
                const uint32_t at = tile_rows::offset_of(row);
                *reinterpret_cast<volatile tt_l1_ptr uint16_t*>(to + at) =
                    *reinterpret_cast<volatile tt_l1_ptr uint16_t*>(from + at);
            }
            (void)*reinterpret_cast<volatile tt_l1_ptr uint16_t*>(
                to + tile_rows::offset_of(31));  // read back: they have reached L1
            from += tile_rows::tile_bytes;
            to += tile_rows::tile_bytes;
        }
    }));
}

// weights = exp((query @ keys^T - maxima) * scale) for `rows` tiles of keys, bfloat16; masks as score_masked() does. After
// register_rows::prepare_unbounded().
template <typename Mask>
inline __attribute__((noinline)) void weigh(
    uint32_t tile, uint32_t rows, uint32_t masked_from, Bands bands, Mask mask) {
    const uint32_t capacity = config::key_tiles();
    cb_reserve_back(weights, capacity);
    online_softmax::begin_scores();
    pack_reconfig_data_format(weights);
    for (uint32_t begin = 0; begin < rows;) {
        const bool masked = begin >= masked_from;
        const uint32_t batch =
            masked ? 1 : online_softmax::at_most_registers((rows < masked_from ? rows : masked_from) - begin);
        tile_regs_acquire();
        online_softmax::multiply_keys(tile * head_tiles, begin, batch);
        for (uint32_t i = 0; i < batch; ++i) {
            matmul_block(maxima, minus_one, tile, 0, i, 1, 1, 1, 1);
        }
        if (masked) {
            mask.multiply(begin - masked_from, 0);
        }
        online_softmax::pack_registers(weights, begin, batch, [&] {
            if (masked) {
                mask.hide(0);
            }
            register_rows::exponentiate_unbounded(batch, bands);
        });
        begin += batch;
    }
    cb_push_back(weights, capacity);
}

// Registers [0, tiles) are added to tiles from `first` of the state pushed `back` states before the end.
inline void add_registers(
    [[maybe_unused]] uint32_t back, [[maybe_unused]] uint32_t first, [[maybe_unused]] uint32_t tiles) {
    tile_regs_commit();
    tile_regs_wait();
    PACK(({
        const auto& buffer = get_local_cb_interface(state);
        const uint32_t page = buffer.fifo_page_size;
        uint32_t address = buffer.fifo_wr_ptr - back * config::partial_tiles * page;
        if (address < buffer.fifo_limit - buffer.fifo_size) {
            address += buffer.fifo_size;
        }
        address += first * page - 1;
        for (uint32_t i = 0; i < tiles; ++i) {
            set_dst_write_addr(i);
            ckernel::packer::program_packer_destination(address, false);
            ckernel::mop_run(1, 1);
            address += page;
        }
    }));
    tile_regs_release();
}

// The state pushed `back` states before the end += weights @ [values | 1] over `rows` tiles of keys; pops the weights.
inline __attribute__((noinline)) void add(uint32_t back, uint32_t rows) {
    constexpr uint32_t stride = value_rows::stride<head_tiles>;
    const uint32_t capacity = config::key_tiles();
    cb_wait_front(weights, capacity);
    tile_regs_acquire();
    reconfig_data_format<SrcOrder::Reverse>(weights, values);
    matmul_init(weights, values, 0);
    pack_reconfig_data_format(state);
    PACK((llk_pack_reconfig_l1_acc(1)));
    for (uint32_t row = 0; row < rows; ++row) {
        cb_wait_front(values, (row + 1) * stride);
        matmul_block(weights, values, row, row * stride, 0, 0, stride, 1, 1);
    }
    add_registers(back, 0, stride);
    if constexpr (!value_rows::with_ones<head_tiles>) {
        tile_regs_acquire();
        reconfig_data_format<SrcOrder::Reverse>(weights, ones);
        matmul_init(weights, ones, 0);
        for (uint32_t row = 0; row < rows; ++row) {
            matmul_tiles(weights, ones, row, 0, 0);
        }
        add_registers(back, head_tiles, 1);
    }
    PACK((llk_pack_reconfig_l1_acc(0)));
    cb_pop_front(weights, capacity);
}

// Until here the unpacker waits for what has been packed.
inline void join() {
    cb_reserve_back(online_softmax::rescale, 1);
    cb_push_back(online_softmax::rescale, 1);
    cb_wait_front(online_softmax::rescale, 1);
    cb_pop_front(online_softmax::rescale, 1);
}

// Whether a row sum of the state at the front of its buffer is not below `most`; for the unpacker's thread.
inline __attribute__((noinline)) bool passed_most() {
    bool passed = false;
    UNPACK(({
        const auto& buffer = get_local_cb_interface(state);
        const uint32_t sums = (buffer.fifo_rd_ptr + head_tiles * buffer.fifo_page_size) << 4;
        for (uint32_t row = 0; row < tile_rows::tile_height; ++row) {
            const uint32_t bits =
                *reinterpret_cast<volatile tt_l1_ptr uint32_t*>(sums + 2 * tile_rows::offset_of(row));
            passed = passed || (bits & 0x7FFFFFFF) >= most;
        }
    }));
    return passed;
}

}  // namespace fixed_maxima

#else

#include "tt_kernels/common/kernels/tile_masks.hpp"

namespace fixed_maxima {

// For the writer, once: the tiles of maxima, and a tile of the cache's format with -1 in column 0, both else 0.
inline __attribute__((noinline)) void push_constants() {
    const uint32_t bytes = get_tile_size(minus_one), at = get_write_ptr(minus_one);
    const bool block_float = bytes != tile_rows::tile_bytes;
    tile_masks::clear(get_write_ptr(maxima), config::query_tiles() * tile_rows::tile_bytes);
    tile_masks::clear(at, bytes);
    noc_async_read_barrier();
    for (uint32_t row = 0; row < tile_rows::tile_height; ++row) {
        const uint32_t offset = tile_rows::offset_of(row);
        if (block_float) {
            auto* const part = reinterpret_cast<volatile tt_l1_ptr uint8_t*>(at);
            part[offset / tile_rows::row_bytes] = 0x7F;
            part[tile_rows::exponents_bytes + offset / 2] = 0xC0;
        } else {
            *reinterpret_cast<volatile tt_l1_ptr uint16_t*>(at + offset) = tile_masks::one | 0x8000;
        }
    }
    cb_push_back(maxima, config::query_tiles());
    cb_push_back(minus_one, 1);
}

}  // namespace fixed_maxima

#endif
