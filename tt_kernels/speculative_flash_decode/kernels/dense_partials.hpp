// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A head's partial results, dense: what workers send and merge. A state of online_softmax.hpp spreads the few query rows of
// a head over head_tiles + 1 tiles, most of which hold nothing. A dense partial result holds one band of 4 query rows in
// two float32 tiles, of which 16 and 4 rows count:
//
//     output  rows 4 t to 4 t + 3: those of the state's tile t, all 32 columns
//     stats   rows 0 to 3: row sums in the even columns of the left face, row maxima in the odd ones
//
// The vector unit merges up to four of them at once, lane by lane: m' = max m, f = exp(scale (m - m')), l' = sum f l and
// O' = sum f O. The matrix unit only moves them to registers, which keeps 11 bits of a number.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "tt_kernels/common/kernels/merge_tree.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace dense_partials {

constexpr uint32_t dense = config::cb_dense, gathered = config::cb_gathered;
constexpr uint32_t row_bytes = 2 * tile_rows::row_bytes, stats_bytes = config::band_rows * row_bytes;
constexpr uint32_t maximum_offset = sizeof(float);  // from the start of a row of stats
constexpr uint32_t most = merge_tree::senders + 1;  // that are merged at once: one for each register

}  // namespace dense_partials

#if !defined(COMPILE_FOR_TRISC)

#include "api/dataflow/dataflow_api.h"

namespace dense_partials {

inline uint32_t page_bytes() { return get_tile_size(dense); }

// For masses::Totals: those of partial result `partial` of a head, which lies where `page` says.
inline volatile tt_l1_ptr uint32_t* totals(
    uint32_t partial, const volatile tt_l1_ptr uint32_t* page, volatile tt_l1_ptr uint32_t* to) {
    const auto word = [](uint32_t address) {
        return *reinterpret_cast<volatile tt_l1_ptr uint32_t*>(address);
    };
    uint32_t row = page[0] + page_bytes();
    for (uint32_t i = partial * config::band_rows;
         i < config::group_heads() && i / config::band_rows == partial; ++i) {
        *to++ = word(row);
        *to++ = word(row + maximum_offset) >> 16;  // bfloat16
        row += row_bytes;
    }
    return to;
}

}  // namespace dense_partials

#else

#include "tt_kernels/common/kernels/online_softmax.hpp"
#include "tt_kernels/common/kernels/register_rows.hpp"

#if defined(TRISC_PACK)

namespace dense_partials::vector {

using ckernel::p_sfpu;
using register_rows::vector::on_by_a_band, register_rows::vector::row_of, register_rows::vector::tile_stride,
    register_rows::vector::vector_rows;

// In rows of the destination.
constexpr uint32_t next_tile = tile_stride * vector_rows, next_face = 16, band_rows = config::band_rows;
static_assert(band_rows == register_rows::band_rows);
constexpr uint32_t stats_maximum = vector_rows;  // the odd columns of the first band

// Band t of register 0 = `band` of register t, for each of head_tiles.
inline void gather_output(uint32_t band) {
    const uint32_t from = row_of(band);
#pragma GCC unroll 4
    for (uint32_t tile = 0; tile < config::head_tiles; ++tile) {
        const uint32_t at = tile * next_tile + from, to = tile * band_rows;
        TT_SFPLOAD(p_sfpu::LREG0, 0, ADDR_MOD_3, at);
        TT_SFPLOAD(p_sfpu::LREG1, 0, ADDR_MOD_3, at + vector_rows);
        TT_SFPLOAD(p_sfpu::LREG2, 0, ADDR_MOD_3, at + next_face);
        TT_SFPLOAD(p_sfpu::LREG3, 0, ADDR_MOD_3, at + next_face + vector_rows);
        TTI_SFPSTORE(p_sfpu::LREG0, 0, ADDR_MOD_3, to);
        TTI_SFPSTORE(p_sfpu::LREG1, 0, ADDR_MOD_3, to + vector_rows);
        TTI_SFPSTORE(p_sfpu::LREG2, 0, ADDR_MOD_3, to + next_face);
        TTI_SFPSTORE(p_sfpu::LREG3, 0, ADDR_MOD_3, to + next_face + vector_rows);
    }
}

// The stats in this register = `band` of its row sums and of the row maxima in the next one.
inline void gather_stats(uint32_t band) {
    const uint32_t from = row_of(band);
    TT_SFPLOAD(p_sfpu::LREG0, 0, ADDR_MOD_3, from);
    TT_SFPLOAD(p_sfpu::LREG1, 0, ADDR_MOD_3, next_tile + from);
    TTI_SFPSTORE(p_sfpu::LREG0, 0, ADDR_MOD_3, 0);
    TTI_SFPSTORE(p_sfpu::LREG1, 0, ADDR_MOD_3, stats_maximum);
}

// Of each register meanwhile what it is multiplied with; of register 0 also the highest row maximum and 1 / row sum.
constexpr uint32_t factor = 2 * vector_rows, highest = next_face;
constexpr uint32_t inverse = highest + vector_rows;

// 2^f as a cubic in x = 1 + f: of least relative error, 0.009 %, for f from 0 to 1 among those from 1 on that stay below 2.
// The coefficients of x^3 to 1.
constexpr uint32_t cubic[] = {0x3D9DCCEE, 0xBB644164, 0x3EF11C43, 0x3EE93925};

// What follows is by hand: the compiler would not leave LREGs alone. An instruction must not follow at once on the
// multiplication or addition whose result it reads, nor another on SFPSWAP.

// LREG7 at least LREG6.
inline void raise() {
    TTI_SFPSWAP(0, p_sfpu::LREG6, p_sfpu::LREG7, register_rows::vector::exponential::highest_to_first);
    TTI_SFPNOP;
}

// The factor of register `at` / next_tile, exp(scale (m - m')): register_rows::vector::exponential, but for the cubic. Its
// coefficients are in LREG4 to 7, and -m' in LREG3.
template <uint32_t at>
inline void exponentiate() {
    using namespace register_rows::vector::exponential;
    TTI_SFPLOAD(p_sfpu::LREG0, 0, ADDR_MOD_3, at + stats_maximum);
    TTI_SFPADD(p_sfpu::LCONST_1, p_sfpu::LREG0, p_sfpu::LREG3, p_sfpu::LREG0, 0);
    TTI_SFPNOP;
    TTI_SFPMAD(p_sfpu::LREG0, p_sfpu::LREG12, p_sfpu::LREG13, p_sfpu::LREG0, 0);
    TTI_SFPNOP;
    TTI_SFPSWAP(0, p_sfpu::LREG14, p_sfpu::LREG0, highest_to_first);
    TTI_SFPNOP;
    TTI_SFPSHFT(shift, p_sfpu::LREG0, p_sfpu::LREG0, by_immediate);
    TTI_SFPSETEXP(127, p_sfpu::LREG0, p_sfpu::LREG1, by_immediate);
    TTI_SFPMAD(p_sfpu::LREG1, p_sfpu::LREG4, p_sfpu::LREG5, p_sfpu::LREG2, 0);
    TTI_SFPNOP;
    TTI_SFPMAD(p_sfpu::LREG1, p_sfpu::LREG2, p_sfpu::LREG6, p_sfpu::LREG2, 0);
    TTI_SFPNOP;
    TTI_SFPMAD(p_sfpu::LREG1, p_sfpu::LREG2, p_sfpu::LREG7, p_sfpu::LREG2, 0);
    TTI_SFPNOP;
    TTI_SFPSETEXP(0, p_sfpu::LREG2, p_sfpu::LREG0, exponent_of_result);
    TTI_SFPSTORE(p_sfpu::LREG0, 0, ADDR_MOD_3, at + factor);
}

// LREG4 + i = the factor of register i, 0 from register `count` on.
inline void load_factors(uint32_t count) {
    TTI_SFPLOAD(p_sfpu::LREG4, 0, ADDR_MOD_3, factor);
    TTI_SFPLOAD(p_sfpu::LREG5, 0, ADDR_MOD_3, factor + next_tile);
    TTI_SFPLOAD(p_sfpu::LREG6, 0, ADDR_MOD_3, factor + 2 * next_tile);
    TTI_SFPLOAD(p_sfpu::LREG7, 0, ADDR_MOD_3, factor + 3 * next_tile);
    if (count < 2) {
        TTI_SFPLOADI(p_sfpu::LREG5, sfpi::SFPLOADI_MOD0_FLOATB, 0);
    }
    if (count < 3) {
        TTI_SFPLOADI(p_sfpu::LREG6, sfpi::SFPLOADI_MOD0_FLOATB, 0);
    }
    if (count < 4) {
        TTI_SFPLOADI(p_sfpu::LREG7, sfpi::SFPLOADI_MOD0_FLOATB, 0);
    }
}

// The stats in registers [0, count), the first one's in those behind, become the merged ones in register 0. Leaves
// load_factors().
inline void merge_stats(uint32_t count, uint32_t scale) {
    using register_rows::vector::exponential::load;
    register_rows::vector::exponential::prepare_range(scale);
    static_assert(most == 4);
    constexpr uint32_t negative = 1;  // of SFPMOV
    TTI_SFPLOAD(p_sfpu::LREG7, 0, ADDR_MOD_3, stats_maximum);
    TTI_SFPLOAD(p_sfpu::LREG6, 0, ADDR_MOD_3, stats_maximum + next_tile);
    raise();
    TTI_SFPLOAD(p_sfpu::LREG6, 0, ADDR_MOD_3, stats_maximum + 2 * next_tile);
    raise();
    TTI_SFPLOAD(p_sfpu::LREG6, 0, ADDR_MOD_3, stats_maximum + 3 * next_tile);
    raise();
    TTI_SFPSTORE(p_sfpu::LREG7, 0, ADDR_MOD_3, highest);
    TTI_SFPMOV(0, p_sfpu::LREG7, p_sfpu::LREG3, negative);
    load<p_sfpu::LREG4>(cubic[0]);
    load<p_sfpu::LREG5>(cubic[1]);
    load<p_sfpu::LREG6>(cubic[2]);
    load<p_sfpu::LREG7>(cubic[3]);
    exponentiate<0>();
    exponentiate<next_tile>();
    exponentiate<2 * next_tile>();
    exponentiate<3 * next_tile>();
    load_factors(count);
    TTI_SFPLOAD(p_sfpu::LREG0, 0, ADDR_MOD_3, 0);
    TTI_SFPLOAD(p_sfpu::LREG1, 0, ADDR_MOD_3, next_tile);
    TTI_SFPMUL(p_sfpu::LREG0, p_sfpu::LREG4, p_sfpu::LCONST_0, p_sfpu::LREG0, 0);
    TTI_SFPLOAD(p_sfpu::LREG2, 0, ADDR_MOD_3, 2 * next_tile);
    TTI_SFPMAD(p_sfpu::LREG1, p_sfpu::LREG5, p_sfpu::LREG0, p_sfpu::LREG0, 0);
    TTI_SFPLOAD(p_sfpu::LREG1, 0, ADDR_MOD_3, 3 * next_tile);
    TTI_SFPMAD(p_sfpu::LREG2, p_sfpu::LREG6, p_sfpu::LREG0, p_sfpu::LREG0, 0);
    TTI_SFPLOAD(p_sfpu::LREG2, 0, ADDR_MOD_3, highest);
    TTI_SFPMAD(p_sfpu::LREG1, p_sfpu::LREG7, p_sfpu::LREG0, p_sfpu::LREG0, 0);
    TTI_SFPSTORE(p_sfpu::LREG2, 0, ADDR_MOD_3, stats_maximum);
    TTI_SFPSTORE(p_sfpu::LREG0, 0, ADDR_MOD_3, 0);
}

// 1 / row sum of this register, or NaN where the row maximum is broken (probe_rows.hpp): above any score.
inline void invert() {
    sfpi::vFloat found = ckernel::sfpu::sfpu_reciprocal_iter<2>(sfpi::dst_reg[0]);
    v_if(sfpi::dst_reg[stats_maximum / vector_rows] >= 0x1p120f) {
        found = ckernel::sfpu::Converter::as_float(0x7FC00000);
    }
    v_endif;
    sfpi::dst_reg[inverse / vector_rows] = found;
}

// For normalise(), after invert() on this register.
inline void load_inverse() { TTI_SFPLOAD(p_sfpu::LREG3, 0, ADDR_MOD_3, inverse); }

// Two vectors at a time, by the replay buffer.
template <uint32_t slots>
inline void for_output() {
    for (uint32_t i = 0; i < 2 * next_face / vector_rows; i += 2) {
        lltt::replay(0, slots);
    }
}

// Of two vectors in its slots: LREG0 and LREG1 = those of register 0, times `by`; and back to them.
template <uint32_t by>
inline void load_times() {
    TTI_SFPLOAD(p_sfpu::LREG0, 0, ADDR_MOD_3, 0);
    TTI_SFPLOAD(p_sfpu::LREG1, 0, ADDR_MOD_3, vector_rows);
    TTI_SFPMUL(p_sfpu::LREG0, by, p_sfpu::LCONST_0, p_sfpu::LREG0, 0);
    TTI_SFPMUL(p_sfpu::LREG1, by, p_sfpu::LCONST_0, p_sfpu::LREG1, 0);
}
inline void store() {
    TTI_SFPSTORE(p_sfpu::LREG0, 0, ADDR_MOD_3, 0);
    TTI_SFPSTORE(p_sfpu::LREG1, 0, on_by_a_band, vector_rows);
}

// Register 0 = the sum of registers i, times LREG4 + i. Leaves LREG3 alone.
inline void merge_output() {
    constexpr uint32_t slots = 18, next = vector_rows;
    lltt::record(0, slots);
    load_times<p_sfpu::LREG4>();
    TTI_SFPLOAD(p_sfpu::LREG2, 0, ADDR_MOD_3, next_tile);
    TTI_SFPMAD(p_sfpu::LREG2, p_sfpu::LREG5, p_sfpu::LREG0, p_sfpu::LREG0, 0);
    TTI_SFPLOAD(p_sfpu::LREG2, 0, ADDR_MOD_3, next_tile + next);
    TTI_SFPMAD(p_sfpu::LREG2, p_sfpu::LREG5, p_sfpu::LREG1, p_sfpu::LREG1, 0);
    TTI_SFPLOAD(p_sfpu::LREG2, 0, ADDR_MOD_3, 2 * next_tile);
    TTI_SFPMAD(p_sfpu::LREG2, p_sfpu::LREG6, p_sfpu::LREG0, p_sfpu::LREG0, 0);
    TTI_SFPLOAD(p_sfpu::LREG2, 0, ADDR_MOD_3, 2 * next_tile + next);
    TTI_SFPMAD(p_sfpu::LREG2, p_sfpu::LREG6, p_sfpu::LREG1, p_sfpu::LREG1, 0);
    TTI_SFPLOAD(p_sfpu::LREG2, 0, ADDR_MOD_3, 3 * next_tile);
    TTI_SFPMAD(p_sfpu::LREG2, p_sfpu::LREG7, p_sfpu::LREG0, p_sfpu::LREG0, 0);
    TTI_SFPLOAD(p_sfpu::LREG2, 0, ADDR_MOD_3, 3 * next_tile + next);
    TTI_SFPMAD(p_sfpu::LREG2, p_sfpu::LREG7, p_sfpu::LREG1, p_sfpu::LREG1, 0);
    store();
    for_output<slots>();
}

// Register 0 *= LREG3.
inline void normalise() {
    constexpr uint32_t slots = 6;
    lltt::record(0, slots);
    load_times<p_sfpu::LREG3>();
    store();
    for_output<slots>();
}

}  // namespace dense_partials::vector

#endif

namespace dense_partials {

using online_softmax::pack_registers, online_softmax::pack_tiles, online_softmax::state;

// The vector unit's work(args...), whose register 0 is register `index`.
template <typename Work, typename... Args>
inline void on_register(
    [[maybe_unused]] uint32_t index, [[maybe_unused]] Work work, [[maybe_unused]] Args... args) {
    PACK((_llk_math_eltwise_unary_sfpu_params_(work, index, ckernel::VectorMode::None, args...)));
}

// What the vector unit does next to a register waits until that has been packed.
inline void wait_for_packer() { PACK((TTI_STALLWAIT(ckernel::p_stall::STALL_SFPU, ckernel::p_stall::PACK))); }

// Register `index` = row maxima, in all columns.
inline void copy_maxima(uint32_t row_max, uint32_t index) {
    reconfig_data_format_srcb(row_max);
    unary_bcast_init<BroadcastType::COL>(row_max);
    unary_bcast<BroadcastType::COL>(row_max, 0, index);
    unary_bcast_uninit<BroadcastType::COL>(row_max);
}

// For online_softmax::accumulate(): the dense partial result of a head of one band, whose row maxima are in the buffer
// `row_max`, in place of the state or `beside` it; none if that is no_row_max.
constexpr uint32_t no_row_max = ~0u;
struct Last {
    uint32_t row_max = no_row_max;
    bool beside = false;

    bool taken() const { return row_max != no_row_max; }
    bool keeps() const { return beside; }
    void add_to_sums(uint32_t index) const { copy_maxima(row_max, index + 1); }
    static void pack_output() {
        wait_for_packer();
        PACK((on_register(0, vector::gather_output, 0)));
        register_rows::finish();
        pack_tiles(dense, 0, 1);
    }
    static void pack_sums([[maybe_unused]] uint32_t index) {
        wait_for_packer();
        PACK((on_register(index, vector::gather_stats, 0)));
        register_rows::finish();
        pack_tiles(dense, 1, 1, index);
    }
};

// Pushes the dense partial results of the state with these row maxima, and pops neither. Not inlined, like others here, as
// a kernel's code must stay small.
inline __attribute__((noinline)) void condense(uint32_t row_max) {
    pack_reconfig_data_format(dense);
    for (uint32_t band = 0; band < config::partials(); ++band) {
        cb_reserve_back(dense, config::dense_pages);
        reconfig_data_format_srca(state);
        copy_init(state);
        tile_regs_acquire();
        for (uint32_t tile = 0; tile < config::head_tiles; ++tile) {
            copy_tile(state, tile, tile);
        }
        pack_registers(dense, 0, 1, [=] { PACK((on_register(0, vector::gather_output, band))); });
        tile_regs_acquire();
        copy_tile(state, config::head_tiles, 0);
        copy_maxima(row_max, 1);
        pack_registers(dense, 1, 1, [=] { PACK((on_register(0, vector::gather_stats, band))); });
        cb_push_back(dense, config::dense_pages);
    }
}

// Partial results that are merged: of each the page with its output.
struct Sources {
    struct {
        uint32_t cb, page;
    } from[most];
    uint32_t count = 0;

    void add(uint32_t cb, uint32_t page) {
        from[count].cb = cb;
        from[count++].page = page;
    }
};

// Register 0 = output / row sum of a band, or NaN where its row maximum is broken; then packed `results` times, as tile
// `band` of so many of each in cb_result: a bfloat16 tile laid out as the output is.
inline void pack_results(uint32_t results, uint32_t band) {
    PACK((on_register(0, vector::normalise)));
    register_rows::finish();
    pack_reconfig_data_format(config::cb_result);
    for (uint32_t i = 0; i < results; ++i) {
        pack_tiles(config::cb_result, i * config::partials() + band, 1);
    }
    pack_reconfig_data_format(dense);
}

// Packs the results of a partial result of one band, which has been waited for: pack_results(). page: its output's. Pops
// nothing. After merge_init().
inline __attribute__((noinline)) void emit(uint32_t page, uint32_t results, uint32_t band) {
    tile_regs_acquire();
    copy_tile(dense, page, 0);
    copy_tile(dense, page + 1, 1);
    tile_regs_commit();
    tile_regs_wait();
    PACK((register_rows::divide_init()));
    PACK((on_register(1, vector::invert)));
    PACK((on_register(1, vector::load_inverse)));
    pack_results(results, band);
    tile_regs_release();
}

// Pushes what 1 to `most` partial results of one band, which have been waited for, become together; pops nothing. Packs its
// results too: pack_results(). After merge_init().
inline __attribute__((noinline)) void merge(
    const Sources& sources, [[maybe_unused]] uint32_t scale, uint32_t results, uint32_t band) {
    const auto copy = [&](uint32_t page) {
        for (uint32_t i = 0; i < most; ++i) {  // the first in place of those that are missing
            const auto& from = sources.from[i < sources.count ? i : 0];
            copy_tile(from.cb, from.page + page, i);
        }
    };
    cb_reserve_back(dense, config::dense_pages);
    tile_regs_acquire();
    copy(1);
    tile_regs_commit();
    tile_regs_wait();
    PACK((on_register(0, vector::merge_stats, sources.count, scale)));
    if (results > 0) {
        PACK((register_rows::divide_init()));
        PACK((on_register(0, vector::invert)));
        PACK((on_register(0, vector::load_factors, sources.count)));
        PACK((on_register(0, vector::load_inverse)));
    }
    register_rows::finish();
    pack_tiles(dense, 1, 1);
    tile_regs_release();

    tile_regs_acquire();
    copy(0);
    tile_regs_commit();
    tile_regs_wait();
    PACK((on_register(0, vector::merge_output)));
    register_rows::finish();
    pack_tiles(dense, 0, 1);
    if (results > 0) {
        wait_for_packer();
        pack_results(results, band);
    }
    tile_regs_release();
    cb_push_back(dense, config::dense_pages);
}

inline void merge_init() {
    reconfig_data_format_srca(dense);
    copy_init(dense);
    pack_reconfig_data_format(dense);
    PACK((_llk_math_eltwise_unary_sfpu_init_<SfpuType::unused>()));
    PACK((register_rows::vector::prepare_moves()));
}

}  // namespace dense_partials

#endif
