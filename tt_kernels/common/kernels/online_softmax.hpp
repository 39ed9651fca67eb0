// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Attention of one tile of queries over chunks of keys, by online softmax; for compute kernels.
//
// The state over the keys seen so far, for 32 query rows: `head_tiles` tiles of unnormalised output (O), then one tile
// of softmax row sums (l), the same in all 32 columns, both float32; and the maximum of each row (row max, m) in column
// 0 of a bfloat16 tile.
// Row maxima only have to be near the highest score. Rounding them, by 2^-8 at most, is harmless while exp() of what it
// moves them, scaled, is a float32, so up to scaled scores of about 22000; and as long as all kernels subtract the same
// rounded value, which two bytes guarantee on every path of the unpacker.
//
// The row sum comes out of the same matmuls as the output, as if the values had a further column of ones: its rounding
// is then that of the output, and cancels.
//
// Keys and values of a chunk are at the start of their buffers, whatever its size, and the caller pops them, so that
// they can serve several tiles of queries and the unpacker can step from one tile of keys to the next.
//
// The matrix unit reads both operands in the format of its right one (SrcA): beside a bfloat16 right operand a float32
// left one would lose its lower bits. So float32 is only ever multiplied with float32, or stands on the right.
// `scale` is the bits of a float32: scores are kept unscaled, and scaled on their way into the exponential.
// `bands` are the rows that matter, in units of 4 (register_rows.hpp): the vector unit skips the others, whose contents
// are then undefined.
//
// Needs a compute configuration with float32 destination registers (4 tiles in half-sync mode). The buffer named `ones`
// holds the tile of tile_masks.hpp and is waited for by the caller.

#pragma once

#include <cstdint>

#include "api/compute/bcast.h"
#include "api/compute/cb_api.h"
#include "api/compute/eltwise_binary.h"
#include "api/compute/matmul.h"
#include "api/compute/pack.h"
#include "api/compute/reconfig_data_format.h"
#include "api/compute/reduce.h"
#include "api/compute/reg_api.h"
#include "api/compute/tile_move_copy.h"
#include "attention_config.hpp"
#include "mass_columns.hpp"
#include "register_rows.hpp"
#include "value_rows.hpp"

namespace online_softmax {

using config::head_tiles;
using register_rows::Bands;

// Buffers. Scores, weights and a chunk of keys or values take config::key_tiles() tiles, whatever the chunk has, so that
// pointers stay at the start.
constexpr uint32_t query = config::cb_query, keys = config::cb_keys, values = config::cb_values;
constexpr uint32_t ones = config::cb_ones, scores = config::cb_scores, weights = config::cb_weights;
constexpr uint32_t state = config::cb_state, rescale = config::cb_rescale;

constexpr uint32_t registers = value_rows::registers;

inline uint32_t at_most_registers(uint32_t tiles) { return tiles < registers ? tiles : registers; }

// Registers from `index` on into `tiles` pages from `address` on, both in units of the buffers' pointers. What pack_tile()
// does for each, with the addresses and checks left out that are the same for all: the packer's thread has the most to do.
inline void pack_pages(
    [[maybe_unused]] uint32_t address,
    [[maybe_unused]] uint32_t page,
    [[maybe_unused]] uint32_t tiles,
    [[maybe_unused]] uint32_t index) {
    PACK(({
        --address;
        for (uint32_t i = 0; i < tiles; ++i) {
            set_dst_write_addr(index + i);
            ckernel::packer::program_packer_destination(address, false);
            ckernel::mop_run(1, 1);
            address += page;
        }
    }));
}

// Registers from `index` on into tiles [first, first + tiles) of `to`.
inline void pack_tiles(
    [[maybe_unused]] uint32_t to,
    [[maybe_unused]] uint32_t first,
    [[maybe_unused]] uint32_t tiles,
    [[maybe_unused]] uint32_t index = 0) {
    PACK(({
        const auto& buffer = get_local_cb_interface(to);
        const uint32_t page = buffer.fifo_page_size;
        pack_pages(buffer.fifo_wr_ptr + first * page, page, tiles, index);
    }));
}

// Packs registers [0, tiles) as pack_tiles() does, after work() of the vector unit on them, and frees them.
template <typename Work>
inline void pack_registers(uint32_t to, uint32_t first, uint32_t tiles, Work work) {
    tile_regs_commit();
    tile_regs_wait();
    work();
    register_rows::finish();
    pack_tiles(to, first, tiles);
    tile_regs_release();
}

inline void pack_registers(uint32_t to, uint32_t first, uint32_t tiles) {
    tile_regs_commit();
    tile_regs_wait();
    pack_tiles(to, first, tiles);
    tile_regs_release();
}

// to = from, `tiles` tiles starting at `first`; nothing is popped. Not inlined, as a kernel's code must stay small.
inline __attribute__((noinline)) void copy_tiles(uint32_t from, uint32_t first, uint32_t tiles, uint32_t to) {
    cb_reserve_back(to, tiles);
    reconfig_data_format_srca(from);
    copy_init(from);
    pack_reconfig_data_format(to);
    for (uint32_t begin = 0; begin < tiles; begin += registers) {
        const uint32_t batch = at_most_registers(tiles - begin);
        tile_regs_acquire();
        for (uint32_t i = 0; i < batch; ++i) {
            copy_tile(from, first + begin + i, i);
        }
        pack_registers(to, begin, batch);
    }
    cb_push_back(to, tiles);
}

// Pops the chunk at the start of a buffer of keys or values.
inline void pop_chunk(uint32_t cb, uint32_t tiles) {
    cb_wait_front(cb, tiles);
    cb_pop_front(cb, tiles);
}

// Registers [0, batch) = query @ keys^T for tiles [begin, begin + batch) of keys, the query's tiles being those from
// `query_first`. After begin_scores().
inline void multiply_keys(uint32_t query_first, uint32_t begin, uint32_t batch) {
    cb_wait_front(keys, (begin + batch) * head_tiles);
    for (uint32_t k = 0; k < head_tiles; ++k) {
        matmul_block(query, keys, query_first + k, begin * head_tiles + k, 0, 1, batch, 1, 1);
    }
}

// In force until formats of the unpackers are set again, after which keys are multiplied one tile at a time.
inline void begin_scores() {
    reconfig_data_format<SrcOrder::Reverse>(query, keys);
    matmul_init(query, keys, 1);
    UNPACK((llk_unpack_AB_matmul_set_in1_column_stride(keys, head_tiles)));
    pack_reconfig_data_format(scores);
}

// scores = query @ keys^T for `rows` tiles of keys. Tiles from `masked_from` on come one at a time and are given to
// mask.multiply(tile - masked_from, register), which may use the registers behind that one and must leave the formats
// of query and keys in force; then to mask.hide(register), which is the vector unit's.
template <typename Mask>
inline void score_masked(uint32_t query_first, uint32_t rows, uint32_t masked_from, Mask mask) {
    const uint32_t capacity = config::key_tiles();
    cb_reserve_back(scores, capacity);
    begin_scores();
    for (uint32_t begin = 0; begin < rows;) {
        const bool masked = begin >= masked_from;
        const uint32_t batch =
            masked ? 1 : at_most_registers((rows < masked_from ? rows : masked_from) - begin);
        tile_regs_acquire();
        multiply_keys(query_first, begin, batch);
        if (masked) {
            mask.multiply(begin - masked_from, 0);
            pack_registers(scores, begin, batch, [&] { mask.hide(0); });
        } else {
            pack_registers(scores, begin, batch);
        }
        begin += batch;
    }
    cb_push_back(scores, capacity);
}

// scores = query @ keys^T for `rows` tiles of keys; the last row of tiles under the tile in `mask` if `masked`.
inline void score(uint32_t mask, uint32_t rows, bool masked) {
    const uint32_t capacity = config::key_tiles();
    cb_reserve_back(scores, capacity);
    begin_scores();
    for (uint32_t begin = 0; begin < rows; begin += registers) {
        const uint32_t batch = at_most_registers(rows - begin);
        tile_regs_acquire();
        multiply_keys(0, begin, batch);
        if (masked && begin + batch == rows) {
            cb_wait_front(mask, 1);
            reconfig_data_format<SrcOrder::Reverse>(ones, mask);
            matmul_tiles(ones, mask, 0, 0, batch - 1);
            cb_pop_front(mask, 1);
        }
        pack_registers(scores, begin, batch);
    }
    cb_push_back(scores, capacity);
}

// Before maxima of rows of scores are packed into `row_max`.
inline void begin_row_max(uint32_t row_max) {
    reconfig_data_format(scores, ones);
    pack_reconfig_data_format(row_max);
    UNPACK((llk_unpack_AB_reduce_init<PoolType::MAX, ReduceDim::REDUCE_ROW>(scores, ones)));
    MATH((llk_math_reduce_init<PoolType::MAX, ReduceDim::REDUCE_ROW, DST_ACCUM_MODE, MATH_FIDELITY>(
        scores, ones)));
}

// row_max = the highest of each row of `tiles` tiles of scores, and of `before` unless it is the first chunk.
// Row 0 of a face has the maxima of its rows side by side, as the pooling of the next chunk goes on from them; hence
// the initialisation without the packer's mask. Column 0 has them as all others read them, and the rest holds nothing.
inline void raise_row_max(uint32_t tiles, uint32_t before, bool first, uint32_t row_max) {
    cb_reserve_back(row_max, 1);
    tile_regs_acquire();
    if (!first) {
        reconfig_data_format_srca(before);
        copy_init(before);
        copy_tile(before, 0, 0);
    }
    begin_row_max(row_max);
    for (uint32_t i = 0; i < tiles; ++i) {
        reduce_tile<PoolType::MAX, ReduceDim::REDUCE_ROW>(scores, ones, i, 0, 0);
    }
    pack_registers(row_max, 0, 1);
    MATH((llk_math_reduce_uninit(scores)));
    cb_push_back(row_max, 1);
}

// weights = exp((scores - row_max) * scale), bfloat16; pops the scores. The row maxima are tile `row_max_index` of their
// buffer. After register_rows::prepare().
inline void weigh(uint32_t row_max, uint32_t tiles, Bands bands, uint32_t row_max_index) {
    const uint32_t capacity = config::key_tiles();
    cb_reserve_back(weights, capacity);
    reconfig_data_format(scores, row_max);
    sub_bcast_cols_init(scores, row_max);
    pack_reconfig_data_format(weights);
    for (uint32_t begin = 0; begin < tiles; begin += registers) {
        const uint32_t batch = at_most_registers(tiles - begin);
        tile_regs_acquire();
        for (uint32_t i = 0; i < batch; ++i) {
            sub_tiles_bcast_cols(scores, row_max, begin + i, row_max_index, i);
        }
        pack_registers(weights, begin, batch, [=] { register_rows::exponentiate(batch, bands); });
    }
    cb_push_back(weights, capacity);
    cb_pop_front(scores, capacity);
}

// rescale = exp((before - after) * scale) of two row maxima, the first tile of `before` and tile `after_index` of
// `after`, in float32. After register_rows::prepare().
inline void rescale_of(uint32_t before, uint32_t after, Bands bands, uint32_t after_index) {
    cb_reserve_back(rescale, 1);
    reconfig_data_format(before, after);
    sub_init(before, after);
    pack_reconfig_data_format(rescale);
    tile_regs_acquire();
    sub_tiles(before, after, 0, after_index, 0);
    pack_registers(rescale, 0, 1, [=] { register_rows::exponentiate_first_column(bands); });
    cb_push_back(rescale, 1);
}

// Registers [0, tiles) += tiles [first, first + tiles) of the state, each row times its `rescale`.
inline void add_rescaled(uint32_t first, uint32_t tiles) {
    reconfig_data_format(state, rescale);
    mul_bcast_cols_init(state, rescale);
    for (uint32_t i = 0; i < tiles; ++i) {
        mul_tiles_bcast_cols(state, rescale, first + i, 0, i);
    }
}

// Packs register `index`, a state's tile of row sums with mass_columns.hpp, into the next page of `masses`, with the
// row maxima of `rows`, column 0 of tile `tile` of the buffer `row_max`; then clears its columns of masses there.
inline void hand_out_masses(
    [[maybe_unused]] uint32_t masses,
    [[maybe_unused]] uint32_t index,
    [[maybe_unused]] uint32_t row_max,
    [[maybe_unused]] uint32_t tile,
    [[maybe_unused]] const mass_columns::Rows& rows) {
    register_rows::finish();
    PACK(({
        const auto& buffer = get_local_cb_interface(masses);
        set_dst_write_addr(index);
        ckernel::packer::program_packer_destination(buffer.fifo_wr_ptr - 1, false);
        ckernel::mop_run(1, 1);
        // The weights of this step were packed after the matrix unit had read these row maxima.
        const auto& maxima = get_local_cb_interface(row_max);
        const uint32_t from = (maxima.fifo_limit - maxima.fifo_size + tile * maxima.fifo_page_size) << 4;
        volatile tt_l1_ptr uint32_t* to = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(
            (buffer.fifo_wr_ptr << 4) + mass_columns::tile_bytes);
        for (uint32_t row = rows.first, end = rows.end(); row < end; row += rows.step) {
            *to++ = *reinterpret_cast<volatile tt_l1_ptr uint16_t*>(from + mass_columns::row_offset(row) / 2);
        }
        (void)to[-1];  // read back: they have reached L1
    }));
    register_rows::clear_masses(index, rows.first, rows.end(), rows.step);
}

// state = state * rescale + weights @ [values | 1] over `rows` tiles of keys; pops the weights.
// The state that is read is the first of its buffer, the new one becomes the last: so a buffer of n + 1 states holds
// those of n tiles of queries, taken in turn.
// The new state is rounded to what the matrix unit takes of it for the next chunk. Cut off there instead, it would lose
// half a last place with each chunk: 4 % after the 128 chunks that a worker of eight has of 128K keys. After
// register_rows::prepare().
//
// hand_out(register): called with the register of row sums before they are packed. with_masses: `ones` or the tiles beside
// the values have mass_columns.hpp.
// last: where the new state goes too, if last.taken(), and no longer to its buffer unless last.keeps(): all threads call
// last.add_to_sums(register) before they hand over the register of row sums, of which the next ones are free; the packer's
// thread last.pack_output() and last.pack_sums(register).
template <bool with_masses, typename HandOut, typename Last>
inline void accumulate(bool first, uint32_t rows, Bands bands, HandOut hand_out, const Last& last) {
    const uint32_t capacity = config::key_tiles();
    static_assert(head_tiles <= registers, "the output of a head must fit the destination registers");
    constexpr bool row_sum_fits = value_rows::with_ones<head_tiles>;
    constexpr uint32_t stride = value_rows::stride<head_tiles>;
    if constexpr (row_sum_fits) {
        cb_wait_front(ones, value_rows::pushes_of_ones<head_tiles>);
    }
    const bool taken = last.taken(), keeps = !taken || last.keeps();
    if (keeps) {
        cb_reserve_back(state, head_tiles + 1);
    }
    tile_regs_acquire();
    if (!first) {
        add_rescaled(0, stride);
    }
    reconfig_data_format<SrcOrder::Reverse>(weights, values);
    matmul_init(weights, values, 0);
    for (uint32_t row = 0; row < rows; ++row) {
        cb_wait_front(values, (row + 1) * stride);
        matmul_block(weights, values, row, row * stride, 0, 0, stride, 1, 1);
    }
    if (row_sum_fits && taken) {
        last.add_to_sums(head_tiles);
    }
    pack_reconfig_data_format(state);
    tile_regs_commit();
    tile_regs_wait();
    if (keeps) {
        register_rows::round(stride, bands);
    }
    if constexpr (row_sum_fits) {
        hand_out(head_tiles);
    }
    if (keeps) {
        register_rows::finish();
        pack_tiles(state, 0, stride);
    }
    if (taken) {
        last.pack_output();
        if constexpr (row_sum_fits) {
            last.pack_sums(head_tiles);
        }
    }
    tile_regs_release();
    if constexpr (!row_sum_fits) {
        tile_regs_acquire();
        if (!first) {
            add_rescaled(head_tiles, 1);
        }
        if constexpr (with_masses) {
            cb_wait_front(ones, 1 + capacity);
        }
        reconfig_data_format<SrcOrder::Reverse>(weights, ones);
        matmul_init(weights, ones, 0);
        for (uint32_t row = 0; row < rows; ++row) {
            matmul_tiles(weights, ones, row, with_masses ? 1 + row : 0, 0);
        }
        if (taken) {
            last.add_to_sums(0);
        }
        tile_regs_commit();
        tile_regs_wait();
        if (keeps) {
            register_rows::round(1, bands);
        }
        hand_out(0);
        if (keeps) {
            register_rows::finish();
            pack_tiles(state, head_tiles, 1);
        }
        if (taken) {
            last.pack_sums(0);
        }
        tile_regs_release();
    }
    if (!first) {
        cb_pop_front(state, head_tiles + 1);
    }
    if (keeps) {
        cb_push_back(state, head_tiles + 1);
    }
    cb_pop_front(weights, capacity);
}

constexpr uint32_t no_copy = 0xFFFFFFFF;

// After the vector unit has worked on them. Not inlined, as a kernel's code must stay small.
inline __attribute__((noinline)) void pack_copy(uint32_t copy, uint32_t first, uint32_t tiles) {
    register_rows::finish();
    pack_tiles(copy, first, tiles);
}

inline void normalise_init(uint32_t to) {
    reconfig_data_format_srca(state);
    copy_init(state);
    register_rows::divide_init();
    pack_reconfig_data_format(to);
}

// to = output / row_sum of the state in tiles from `first` of its buffer, in the bands of rows `bands`; pops nothing. The same
// into `copy`, a buffer of the same format, before. After normalise_init().
inline void normalise(uint32_t first, Bands bands, uint32_t to, uint32_t copy = no_copy) {
    constexpr uint32_t most = registers - 1;  // beside the row sum
    constexpr uint32_t rest = head_tiles % most;
    cb_reserve_back(to, head_tiles);
    if (copy != no_copy) {
        cb_reserve_back(copy, head_tiles);
    }
    for (uint32_t begin = 0; begin < head_tiles; begin += most) {
        const uint32_t batch = begin + most <= head_tiles ? most : rest;
        tile_regs_acquire();
        for (uint32_t i = 0; i < batch; ++i) {
            copy_tile(state, first + begin + i, i);
        }
        copy_tile(state, first + head_tiles, batch);
        pack_registers(to, begin, batch, [=] {
            if (batch == most) {
                register_rows::divide<most>(bands);
            } else {
                register_rows::divide<rest>(bands);
            }
            if (copy != no_copy) {
                pack_copy(copy, begin, batch);
            }
        });
    }
    if (copy != no_copy) {
        cb_push_back(copy, head_tiles);
    }
    cb_push_back(to, head_tiles);
}

}  // namespace online_softmax
