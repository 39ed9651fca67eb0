// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Softmax relative to one score for each tile of queries, the highest to the first key tile; for prefills, all of whose
// query tiles are full. A softmax does not depend on what its exponents are relative to, so nothing is rescaled: scores
// go from the matrix unit to the vector unit as they are, and the packer adds each chunk's output and row sums to the
// state in L1. (FlashAttention-4 rescales only where the maximum rises by much; here nothing looks for it meanwhile.)
//
// Where scores of a row lie so far from that one that its sum is not between 2^-96 and 2^96, e^66, exponentials may have
// been cut off. Such a job is noted, and done again after all others by online softmax.

#pragma once

#include <cstdint>

#include "config.hpp"

namespace steady_softmax {

constexpr uint32_t highest = config::cb_highest;  // words: the bits of that score for each tile of queries
constexpr uint32_t cache_ones = config::cb_cache_ones;  // a tile of ones in the format of the cache
constexpr uint32_t verdicts = config::cb_verdicts;

// A word for each job of this core, in its order: whether it is done again. Complete with the only page of its buffer.
inline bool failed(uint32_t round) {
#if defined(COMPILE_FOR_TRISC)
    return read_tile_value(verdicts, 0, round) != 0;
#else
    return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_read_ptr(verdicts))[round] != 0;
#endif
}

// The jobs of a group, one after another, then those that are done again.
class Turns {
public:
    Turns(uint32_t group, uint32_t groups, uint32_t jobs) : group_(group), groups_(groups), jobs_(jobs) {}

    // Goes on to the next job; whether there is one.
    bool next() {
        for (;;) {
            ++round_;
            if (round_ * groups_ + group_ < jobs_) {
                if (!again_ || failed(round_)) {
                    return true;
                }
            } else if (again_ || !config::prefills) {
                return false;
            } else {
                again_ = true;
                round_ = ~0u;
#if defined(COMPILE_FOR_TRISC)
                cb_push_back(verdicts, 1);
#endif
                cb_wait_front(verdicts, 1);
            }
        }
    }

    // Of a prefill later trees have more keys: every second whole round goes through the groups backwards.
    uint32_t job() const {
        const uint32_t first = round_ * groups_;
        const bool backwards = config::prefills && round_ % 2 == 1 && first + groups_ <= jobs_;
        return first + (backwards ? groups_ - 1 - group_ : group_);
    }
    uint32_t round() const { return round_; }
    bool again() const { return again_; }

private:
    uint32_t group_, groups_, jobs_;
    uint32_t round_ = ~0u;
    bool again_ = false;
};

}  // namespace steady_softmax

#if defined(COMPILE_FOR_TRISC)

#include "tt_kernels/common/kernels/online_softmax.hpp"

namespace steady_softmax {

using online_softmax::head_tiles, online_softmax::query, online_softmax::keys, online_softmax::values,
    online_softmax::ones, online_softmax::weights, online_softmax::state;
constexpr register_rows::Bands whole{0, tile_rows::tile_height / register_rows::band_rows};

constexpr uint32_t least = (127 - 96) << 23, most = (127 + 96)
                                                    << 23;  // 2^-96 and 2^96, the bits of a float32

// The words of `highest` = the highest row maximum of each tile of `row_max`, which have been waited for. The packer's
// thread waits for them.
inline __attribute__((noinline)) void find_highest([[maybe_unused]] uint32_t row_max) {
    UNPACK(({
        uint32_t from = get_local_cb_interface(row_max).fifo_rd_ptr << 4;
        volatile tt_l1_ptr uint32_t* to =
            reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_local_cb_interface(highest).fifo_rd_ptr << 4);
        for (uint32_t tile = 0; tile < config::query_tiles(); ++tile, from += tile_rows::tile_bytes) {
            int32_t found = INT32_MIN;  // of integers in the order of the numbers
            for (uint32_t row = 0; row < tile_rows::tile_height; ++row) {
                const int32_t bits =
                    *reinterpret_cast<volatile tt_l1_ptr int16_t*>(from + tile_rows::offset_of(row));
                const int32_t ordered = bits < 0 ? bits ^ 0x7FFF : bits;
                found = found < ordered ? ordered : found;
            }
            *to = static_cast<uint32_t>(found < 0 ? found ^ 0x7FFF : found) << 16;
            (void)*to++;  // read back: it has reached L1
        }
        mailbox_write(ckernel::ThreadId::PackThreadId, 1);
    }));
    PACK((mailbox_read(ckernel::ThreadId::UnpackThreadId)));
}

// The packer's thread reads it.
inline uint32_t highest_of([[maybe_unused]] uint32_t tile) {
    uint32_t found = 0;
    PACK(({
        found = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(
            get_local_cb_interface(highest).fifo_wr_ptr << 4)[tile];
    }));
    return found;
}

// One tile of queries over a chunk of `rows` key tiles, of which those from `masked_from` on are masked. The chunk has times
// from its key tile `times_from` on.
struct Step {  // small, as stacks are
    uint8_t tile, rows, masked_from, times_from;
    bool first;  // chunk of the job
    bool last;   // of the chunk's tiles of queries
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
        online_softmax::pack_pages(address + to * page, page, tiles, first);
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
        const uint32_t left =
            (step_.rows < step_.masked_from || masked ? step_.rows : step_.masked_from) - begin_;
        const uint32_t batch = masked ? attention::min(left, 1) : attention::min(left, most);
        tile_regs_acquire();
        if (batch > 0) {
            online_softmax::multiply_keys(step_.tile * head_tiles, begin_, batch);
        }
        if (sums_of != nullptr) {
            for (uint32_t row = 0; row < sums_of->rows; ++row) {
                matmul_block(weights, cache_ones, row, 0, sums, 1, 1, 1, 1);
            }
        }
        if (masked && batch > 0) {
            Mask{step_.tile, whole}.multiply(begin_ - step_.times_from, 0);
        }
        tile_regs_commit();
        tile_regs_wait();
        if (batch > 0) {
            if (masked) {
                register_rows::hide<true>(0, whole);
            }
            register_rows::exponentiate_unbounded(batch, whole);
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
        register_rows::relative_to(highest_of(next.tile));
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

// The row maxima of the first key tile, whether queries see it or not: tile i of `row_max` for query tile i. As many tiles
// of queries at a time as there are registers.
inline __attribute__((noinline)) void first_maxima(uint32_t row_max) {
    using online_softmax::scores;
    const uint32_t capacity = config::key_tiles(), tiles = config::query_tiles();
    for (uint32_t first = 0; first < tiles;) {
        const uint32_t batch = attention::min(online_softmax::at_most_registers(tiles - first), capacity);
        cb_reserve_back(scores, capacity);
        online_softmax::begin_scores();
        tile_regs_acquire();
        for (uint32_t i = 0; i < batch; ++i) {
            cb_wait_front(query, (first + i + 1) * head_tiles);
            cb_wait_front(keys, head_tiles);
            for (uint32_t k = 0; k < head_tiles; ++k) {
                matmul_block(query, keys, (first + i) * head_tiles + k, k, i, 1, 1, 1, 1);
            }
        }
        online_softmax::pack_registers(scores, 0, batch);
        cb_push_back(scores, capacity);
        cb_wait_front(scores, capacity);
        cb_reserve_back(row_max, batch);
        online_softmax::begin_row_max(row_max);
        tile_regs_acquire();
        for (uint32_t i = 0; i < batch; ++i) {
            reduce_tile<PoolType::MAX, ReduceDim::REDUCE_ROW>(scores, ones, i, 0, i);
        }
        online_softmax::pack_registers(row_max, 0, batch);
        MATH((llk_math_reduce_uninit(scores)));
        cb_push_back(row_max, batch);
        cb_pop_front(scores, capacity);
        first += batch;
    }
    cb_wait_front(row_max, tiles);
}

// Before the first step of a job.
inline void begin(uint32_t row_max, uint32_t scale) {
    first_maxima(row_max);
    find_highest(row_max);
    register_rows::prepare_unbounded(scale);
    online_softmax::begin_scores();
    pack_reconfig_data_format(weights);
    cb_reserve_back(state, config::query_tiles() * config::partial_tiles);
}

// Whether a row sum of the state at the front of its buffer is out of range; for the unpacker's thread.
inline __attribute__((noinline)) bool out_of_range() {
    bool found = false;
    UNPACK(({
        const auto& buffer = get_local_cb_interface(state);
        const uint32_t sums = (buffer.fifo_rd_ptr + head_tiles * buffer.fifo_page_size) << 4;
        for (uint32_t row = 0; row < tile_rows::tile_height; ++row) {
            const uint32_t bits =
                *reinterpret_cast<volatile tt_l1_ptr uint32_t*>(sums + 2 * tile_rows::offset_of(row));
            found = found || bits < least || bits >= most;  // or negative
        }
    }));
    return found;
}

// The word of a job. failed: as the unpacker's thread has it.
inline void note([[maybe_unused]] uint32_t round, [[maybe_unused]] bool failed) {
    UNPACK((mailbox_write(ckernel::ThreadId::PackThreadId, failed)));
    PACK(({
        volatile tt_l1_ptr uint32_t* const word = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(
                                                      get_local_cb_interface(verdicts).fifo_wr_ptr << 4) +
                                                  round;
        *word = mailbox_read(ckernel::ThreadId::UnpackThreadId);
        (void)*word;  // read back: it has reached L1
    }));
}

}  // namespace steady_softmax

#else

#include "tt_kernels/common/kernels/tile_masks.hpp"

namespace steady_softmax {

// For the writer, once.
inline void push_ones() {
    const uint32_t at = get_write_ptr(cache_ones);
    if (get_tile_size(cache_ones) == tile_rows::tile_bytes) {
        tile_masks::ones(at);
    } else {
        tile_masks::block_float_ones(at);
    }
    cb_push_back(cache_ones, 1);
}

}  // namespace steady_softmax

#endif
