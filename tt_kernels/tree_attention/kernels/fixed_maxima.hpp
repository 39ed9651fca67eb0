// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Softmax whose row maxima stay those of the first key tile, for jobs of one worker. A softmax does not
// depend on what its exponents are relative to, so nothing is ever rescaled: scores go from the matrix unit to the vector
// unit as they are, and the packer adds each chunk's output and row sums to the state in L1. The maxima come out of the
// same matmuls as the scores, as if queries had further columns of them and keys of -1.
//
// Where later scores exceed those maxima by so much that a row sum passes `most` (e^66), an exponential may have been cut
// off. Such a job is noted, and done again after all others with maxima that rise.

#pragma once

#include <cstdint>

#include "config.hpp"

namespace fixed_maxima {

constexpr uint32_t maxima = config::cb_fixed_maxima, minus_one = config::cb_minus_one;
constexpr uint32_t verdicts = config::cb_verdicts;
constexpr uint32_t constants = 3 * config::head_tiles + 1;  // tiles of minus_one

// A word for each job of this core, in its order: whether it is done again. Complete with the only page of its buffer.
inline bool passed(uint32_t round) {
#if defined(COMPILE_FOR_TRISC)
    return read_tile_value(verdicts, 0, round) != 0;
#else
    return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_read_ptr(verdicts))[round] != 0;
#endif
}

// Calls visit(index, round, again) for each job of a group, then for those that are done again.
template <typename Visit>
inline void for_each_job(uint32_t group, uint32_t groups, uint32_t jobs, Visit visit) {
    for (uint32_t index = group, round = 0; index < jobs; index += groups, ++round) {
        visit(index, round, false);
    }
    if (!config::fixes_maxima()) {
        return;
    }
#if defined(COMPILE_FOR_TRISC)
    cb_push_back(verdicts, 1);
#endif
    cb_wait_front(verdicts, 1);
    for (uint32_t index = group, round = 0; index < jobs; index += groups, ++round) {
        if (passed(round)) {
            visit(index, round, true);
        }
    }
}

}  // namespace fixed_maxima

#if defined(COMPILE_FOR_TRISC)

#include "tt_kernels/common/kernels/online_softmax.hpp"

namespace fixed_maxima {

using online_softmax::head_tiles, online_softmax::query, online_softmax::keys, online_softmax::values,
    online_softmax::ones, online_softmax::weights, online_softmax::state;
using register_rows::Bands;

constexpr uint32_t most = (127 + 96) << 23;  // 2^96, the bits of a float32

// Columns 0 and 1 of the tiles of `maxima` add up to the row maxima in the first `tiles` tiles of `row_max`, which have been
// waited for. The last bit of a maximum is in a column of its own: HiFi2 and HiFi3 take one bit less of a left operand than
// bfloat16 has.
inline __attribute__((noinline)) void keep(
    [[maybe_unused]] uint32_t row_max, [[maybe_unused]] uint32_t tiles) {
    UNPACK(({
        constexpr uint32_t exponent = 0xFF << 7, places = 7;
        uint32_t from = get_local_cb_interface(row_max).fifo_rd_ptr << 4;
        uint32_t to = get_local_cb_interface(maxima).fifo_rd_ptr << 4;
        for (uint32_t tile = 0; tile < tiles; ++tile) {
            uint32_t written = 0;
            for (uint32_t row = 0; row < tile_rows::tile_height; ++row) {
                const uint32_t at = tile_rows::offset_of(row);
                const uint32_t maximum = *reinterpret_cast<volatile tt_l1_ptr uint16_t*>(from + at);
                const bool odd = maximum % 2 == 1 && (maximum & exponent) > places << places;
                const uint32_t last = odd ? (maximum & ~((1u << places) - 1)) - (places << places) : 0;
                written = to + at;
                *reinterpret_cast<volatile tt_l1_ptr uint32_t*>(written) = (maximum & ~1u) | last << 16;
            }
            (void)*reinterpret_cast<volatile tt_l1_ptr uint32_t*>(written);  // read back: they have reached L1
            from += tile_rows::tile_bytes;
            to += tile_rows::tile_bytes;
        }
    }));
}

// One tile of queries over a chunk of `rows` key tiles, of which those from `masked_from` on are masked.
struct Step {  // small, as stacks are
    uint8_t tile, rows, masked_from;
    uint8_t first_band, end_band;
    bool first;  // chunk of the job
    bool last;   // of the chunk's tiles of queries

    Bands bands() const { return {first_band, end_band}; }
    void set_bands(Bands bands) {
        first_band = bands.begin;
        end_band = bands.end;
    }
};

// Registers [first, first + tiles) are added to tiles from `to` of the state of query tile `tile`.
inline void add_registers(
    [[maybe_unused]] uint32_t tile,
    [[maybe_unused]] uint32_t to,
    [[maybe_unused]] uint32_t first,
    [[maybe_unused]] uint32_t tiles) {
    PACK(({
        const auto& buffer = get_local_cb_interface(state);
        const uint32_t page = buffer.fifo_page_size;
        uint32_t address = buffer.fifo_wr_ptr + tile * config::partial_tiles * page;
        if (address >= buffer.fifo_limit) {
            address -= buffer.fifo_size;
        }
        address += to * page - 1;
        for (uint32_t i = 0; i < tiles; ++i) {
            set_dst_write_addr(first + i);
            ckernel::packer::program_packer_destination(address, false);
            ckernel::mop_run(1, 1);
            address += page;
        }
    }));
}

// What is packed next is added to a state, or becomes it.
inline void pack_to_state(bool adds) {
    pack_reconfig_data_format(state);
    if (adds) {
        PACK((llk_pack_reconfig_l1_acc(1)));
    }
}

inline void pack_to_weights() {
    PACK((llk_pack_reconfig_l1_acc(0)));
    pack_reconfig_data_format(weights);
}

constexpr uint32_t sums = online_softmax::registers - 1;  // the register of row sums beside weights

// Scores of keys become weights, a few key tiles at a time.
template <typename Mask>
class Pieces {
public:
    explicit Pieces(const Step& step) : step_(step) {}

    bool done() const { return begin_ == step_.rows; }

    // Weighs at most `most` key tiles. sums_of: none, or the step whose row sums the matrix unit adds up beside them.
    __attribute__((noinline)) void weigh(uint32_t most, const Step* sums_of) {
        const bool masked = begin_ >= step_.masked_from;
        const uint32_t left = (step_.rows < step_.masked_from || masked ? step_.rows : step_.masked_from) - begin_;
        const uint32_t batch = masked ? attention::min(left, 1) : attention::min(left, most);
        tile_regs_acquire();
        if (batch > 0) {
            online_softmax::multiply_keys(step_.tile * head_tiles, begin_, batch);
            matmul_block(maxima, minus_one, step_.tile, 0, 0, 1, batch, 1, 1);
        }
        if (sums_of != nullptr) {
            for (uint32_t row = 0; row < sums_of->rows; ++row) {
                matmul_block(weights, minus_one, row, 1, sums, 1, 1, 1, 1);
            }
        }
        if (masked && batch > 0) {
            Mask{step_.tile, step_.bands()}.multiply(begin_ - step_.masked_from, 0);
        }
        tile_regs_commit();
        tile_regs_wait();
        if (batch > 0) {
            if (masked) {
                Mask{step_.tile, step_.bands()}.hide(0);
            }
            register_rows::exponentiate_unbounded(batch, step_.bands());
            register_rows::finish();
            online_softmax::pack_tiles(weights, begin_, batch);
        }
        if (sums_of != nullptr) {
            pack_to_state(!sums_of->first);
            add_registers(sums_of->tile, head_tiles, sums, 1);
        }
        tile_regs_release();
        begin_ += batch;
    }

private:
    const Step& step_;
    uint32_t begin_ = 0;
};

// For products with a transposed right operand or not, whose tiles for neighbouring registers are `stride` apart: what
// differs of matmul_init(), and no formats, which are those of all products here.
inline void begin_products(uint32_t right, bool transposed, [[maybe_unused]] uint32_t stride) {
    UNPACK((TTI_STALLWAIT(ckernel::p_stall::STALL_CFG, ckernel::p_stall::UNPACK)));
    UNPACK((ckernel::cfg_reg_rmw_tensix<THCON_SEC0_REG2_Haloize_mode_RMW>(transposed)));
    UNPACK((llk_unpack_AB_matmul_set_in1_column_stride(right, stride)));
    MATH((matmul_configure_addrmod<MATH_FIDELITY, MM_THROTTLE>(transposed)));
}

inline void begin_scores() { begin_products(keys, true, head_tiles); }

// The output of `step` is added to its state; pops its weights, and with the last tile of queries the values.
inline __attribute__((noinline)) void add_output(const Step& step) {
    constexpr uint32_t stride = value_rows::stride<head_tiles>;
    begin_products(values, false, 1);
    tile_regs_acquire();
    cb_wait_front(values, step.rows * stride);
    for (uint32_t row = 0; row < step.rows; ++row) {
        matmul_block(weights, values, row, row * stride, 0, 0, stride, 1, 1);
    }
    if constexpr (value_rows::with_ones<head_tiles>) {
        pack_to_state(!step.first);
    }
    tile_regs_commit();
    tile_regs_wait();
    add_registers(step.tile, 0, 0, stride);
    tile_regs_release();
    pack_to_weights();
    cb_pop_front(weights, config::key_tiles());
    if (step.last) {
        online_softmax::pop_chunk(values, config::key_tiles() * stride);
    }
}

// The weights of `next`, if there is one, and between them what `before`, if there is one, adds to its state: so that the
// matrix unit multiplies values while the vector unit computes exponentials.
template <typename Mask>
inline void take(const Step* before, const Step& next) {
    constexpr uint32_t registers = online_softmax::registers;
    const uint32_t capacity = config::key_tiles();
    Pieces<Mask> pieces(next);
    if (next.rows > 0) {
        cb_reserve_back(weights, capacity);
        begin_scores();
        pieces.weigh(registers, nullptr);
    }
    if (before != nullptr) {
        cb_wait_front(weights, capacity);
        if constexpr (!value_rows::with_ones<head_tiles>) {
            pieces.weigh(sums, before);
        }
        add_output(*before);
        if (!pieces.done()) {
            begin_scores();
        }
    }
    while (!pieces.done()) {
        pieces.weigh(registers, nullptr);
    }
    if (next.rows > 0) {
        cb_push_back(weights, capacity);
    }
}

// Before the first step of a job whose row maxima are in `row_max`, which have been waited for.
inline __attribute__((noinline)) void begin(uint32_t row_max, uint32_t tiles, uint32_t scale) {
    keep(row_max, tiles);
    register_rows::prepare_unbounded(scale);
    reconfig_data_format<SrcOrder::Reverse>(query, keys);
    matmul_init(query, keys, 1);
    pack_reconfig_data_format(weights);
    cb_reserve_back(state, tiles * config::partial_tiles);
}

// Whether one of the first `rows` row sums of the state at the front of its buffer is `most` or more, or NaN; for the
// unpacker's thread.
inline __attribute__((noinline)) bool passes_most([[maybe_unused]] uint32_t rows) {
    bool passed = false;
    UNPACK(({
        const auto& buffer = get_local_cb_interface(state);
        const uint32_t sums = (buffer.fifo_rd_ptr + head_tiles * buffer.fifo_page_size) << 4;
        for (uint32_t row = 0; row < rows; ++row) {
            const uint32_t bits =
                *reinterpret_cast<volatile tt_l1_ptr uint32_t*>(sums + 2 * tile_rows::offset_of(row));
            passed = passed || (bits & 0x7FFFFFFF) >= most;
        }
    }));
    return passed;
}

// The word of a job.
inline void note([[maybe_unused]] uint32_t round, [[maybe_unused]] bool passed) {
    UNPACK((mailbox_write(ckernel::ThreadId::PackThreadId, passed)));
    PACK(({
        volatile tt_l1_ptr uint32_t* const word =
            reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_local_cb_interface(verdicts).fifo_wr_ptr << 4) + round;
        *word = mailbox_read(ckernel::ThreadId::UnpackThreadId);
        (void)*word;  // read back: it has reached L1
    }));
}

}  // namespace fixed_maxima

#else

#include "tt_kernels/common/kernels/tile_masks.hpp"

namespace fixed_maxima {

// For the writer, once: the tiles of maxima, cleared; and tiles of the cache's format: of -1 in columns 0 and 1 and else 0, each as
// far from the one before as those of keys are, and one of ones.
inline __attribute__((noinline)) void push_constants() {
    const uint32_t bytes = get_tile_size(minus_one), at = get_write_ptr(minus_one);
    const bool block_float = bytes != tile_rows::tile_bytes;
    tile_masks::clear(get_write_ptr(maxima), config::query_tiles() * tile_rows::tile_bytes);
    tile_masks::clear(at, bytes);
    noc_async_read_barrier();
    for (uint32_t row = 0; row < tile_rows::tile_height; ++row) {
        const uint32_t offset = tile_rows::offset_of(row);
        if (block_float) {
            reinterpret_cast<volatile tt_l1_ptr uint8_t*>(at)[offset / tile_rows::row_bytes] = 0x7F;
            *reinterpret_cast<volatile tt_l1_ptr uint16_t*>(at + tile_rows::exponents_bytes + offset / 2) = 0xC0C0;
        } else {
            constexpr uint32_t minus_one = tile_masks::one | 0x8000;
            *reinterpret_cast<volatile tt_l1_ptr uint32_t*>(at + offset) = minus_one << 16 | minus_one;
        }
    }
    if (block_float) {
        tile_masks::block_float_ones(at + bytes);
    } else {
        tile_masks::ones(at + bytes);
    }
    for (uint32_t tile = config::head_tiles; tile < constants; tile += config::head_tiles) {
        noc_async_read(get_noc_addr(at), at + tile * bytes, bytes);
    }
    noc_async_read_barrier();
    cb_push_back(maxima, config::query_tiles());
    cb_push_back(minus_one, constants);
}

}  // namespace fixed_maxima

#endif
