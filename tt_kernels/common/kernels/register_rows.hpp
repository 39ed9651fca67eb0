// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The vector unit on some rows of destination tiles, for compute kernels. Decoding has few query rows in a tile of 32;
// what works on its bands of 4 rows, the height of a vector, costs as much as there are rows.
//
// A vector holds the even or the odd columns of a band in one face (16 x 16), so a band is four vectors of a tile.
// All need float32 destination registers. But for the sums of squares, the packer's thread drives the vector unit: so
// that it works on registers that the matrix unit is done with while that fills the others, as in tt-metal's streaming
// SDPA. All of a kernel's work of the vector unit is that thread's then, since its registers are shared; it stands
// between tile_regs_wait() and packing, in pack_registers() of online_softmax.hpp.

#pragma once

#include <cstdint>

#include "api/compute/eltwise_unary/exp.h"
#include "api/compute/eltwise_unary/recip.h"

namespace register_rows {

constexpr uint32_t band_rows = 4;

// Bands [begin, end) of a tile.
struct Bands {
    uint32_t begin;
    uint32_t end;
};

// Returns the bands that contain rows [begin, end).
inline Bands bands_of(uint32_t begin, uint32_t end) {
    return {begin / band_rows, (end + band_rows - 1) / band_rows};
}

}  // namespace register_rows

#if defined(TRISC_MATH) || defined(TRISC_PACK)

#include "ckernel_sfpu_exp.h"
#include "ckernel_sfpu_recip.h"
#include "llk_math_eltwise_unary_sfpu_params.h"
#include "sfpi.h"
#include "sfpu/ckernel_sfpu_converter.h"

namespace register_rows::vector {

// In vectors of sfpi::dst_reg.
constexpr uint32_t tile_stride = 32;
constexpr uint32_t face_stride = 8;
constexpr uint32_t band_stride = 2;
constexpr uint32_t bands_per_face = 4;
// In rows of the destination, as instructions address it.
constexpr uint32_t vector_rows = 2;

// How loads and stores move on, beside ADDR_MOD_3, which does not. The vector unit's functions use the upper four
// modes.
constexpr uint32_t on_by_a_band = ADDR_MOD_2, on_by_a_vector = ADDR_MOD_1;

inline void prepare_moves() {
    using ckernel::addr_mod_t;
    addr_mod_t{.srca = {.incr = 0}, .srcb = {.incr = 0}, .dest = {.incr = band_stride * vector_rows}}.set(
        ADDR_MOD_6);
    addr_mod_t{.srca = {.incr = 0}, .srcb = {.incr = 0}, .dest = {.incr = vector_rows}}.set(ADDR_MOD_5);
}

// Calls visit() for each band, with sfpi::dst_reg[0] at its first vector in the left face; visit() leaves it at the
// next band.
template <typename Visit>
sfpi_inline void for_each_band(Bands bands, Visit visit) {
    for (uint32_t band = 0; band < bands.end; ++band) {
        if (band >= bands.begin) {
            visit();
        } else {
            sfpi::dst_reg += band_stride;
        }
        if (band % bands_per_face == bands_per_face - 1) {
            sfpi::dst_reg += face_stride / 2;  // over the face to the right, in steps an instruction can hold
            sfpi::dst_reg += face_stride / 2;
        }
    }
}

// As for_each_band, for the part of each band in either face: first those of all bands of the left one.
template <typename Visit>
sfpi_inline void for_each_half_band(Bands bands, Visit visit) {
    const uint32_t steps = bands.end > bands_per_face ? 4 * bands_per_face : 2 * bands_per_face;
    for (uint32_t step = 0; step < steps; ++step) {
        const uint32_t band = step / (2 * bands_per_face) * bands_per_face + step % bands_per_face;
        if (band >= bands.begin && band < bands.end) {
            visit();
        } else {
            sfpi::dst_reg += band_stride;
        }
    }
}

template <uint32_t tiles>
inline void divide(Bands bands) {
    for_each_band(bands, [] {
        const sfpi::vFloat inverse =
            ckernel::sfpu::sfpu_reciprocal_iter<2>(sfpi::dst_reg[tiles * tile_stride]);
#pragma GCC unroll 16
        for (uint32_t i = 0; i < 4 * tiles; ++i) {
            const uint32_t at = i / 4 * tile_stride + i / 2 % 2 * face_stride + i % 2;
            sfpi::dst_reg[at] = sfpi::dst_reg[at] * inverse;
        }
        sfpi::dst_reg += band_stride;
    });
}

// Two vectors = exp(vector * scale), 0.21 % off at most, which is less than bfloat16's steps: 2^f as a parabola in f,
// after Schraudolph, "A Fast, Compact Approximation of the Exponential Function" (1999), for the rest. Exact for 0,
// since what has not changed must stay as it is however often it is rescaled.
//
// t = vector * scale * log2(e) + 127 + 512 has the result's biased exponent and 14 bits of f in its mantissa, as all t
// from 512 to 1024 have the same exponent; shifted left by 9 they are in place. What lies below exp()'s range is raised
// to t = 512, the exponent 0. In LREGs by hand, two vectors in turn: an instruction must not follow at once on the
// multiplication whose result it reads, nor another on SFPSWAP.
namespace exponential {

constexpr uint32_t log2_e = 0x3FB8AA3B;
constexpr uint32_t bias = 0x441FC000;    // 127 + 512
constexpr uint32_t lowest = 0x44000000;  // 512
constexpr uint32_t shift = 9;
// 2^f = (slope * (1 + f) + offset)^2 + rest, of least relative error for f from 0 to 1 among those that are 1 for f =
// 0: exactly so, whether or not the square is rounded, since its exponent is replaced.
constexpr uint32_t slope = 0x3F130AD5;                                // 0.57438403
constexpr uint32_t offset = 0x3BADE340;                               // 0.00530663
constexpr uint32_t rest = 0x3F29F933;                                 // 0.66395870
constexpr uint32_t first_slot = 0, slots = 20, slots_unbounded = 24;  // of the replay buffer
// 512 + 254.99: what lies above exp()'s range is cut off there.
constexpr uint32_t highest = 0x443FBF5C;

template <uint32_t lreg>
inline void load(uint32_t bits) {
    TT_SFPLOADI(lreg, sfpi::SFPLOADI_MOD0_LOWER, bits & 0xFFFF);
    TT_SFPLOADI(lreg, sfpi::SFPLOADI_MOD0_UPPER, bits >> 16);
}

constexpr uint32_t highest_to_first = 9, lowest_to_first = 1;  // of SFPSWAP
constexpr uint32_t by_immediate = 1, exponent_of_result = 2;   // of SFPSHFT and SFPSETEXP
constexpr uint32_t to_int16 = 7;                               // of SFPSTOCHRND, from float32

// The programmable constants 12 to 14: t = vector * 12 + 13, at least 14. scale: the bits of a float32.
inline void prepare_range(uint32_t scale) {
    using ckernel::p_sfpu;
    load<p_sfpu::LREG0>(bias);
    TTI_SFPCONFIG(0, p_sfpu::LREG13, 0);
    load<p_sfpu::LREG0>(lowest);
    TTI_SFPCONFIG(0, p_sfpu::LREG14, 0);
    load<p_sfpu::LREG0>(scale);
    load<p_sfpu::LREG1>(log2_e);
    TTI_SFPMUL(p_sfpu::LREG0, p_sfpu::LREG1, p_sfpu::LCONST_0, p_sfpu::LREG0, 0);
    TTI_SFPNOP;
    TTI_SFPCONFIG(0, p_sfpu::LREG12, 0);
}

// Those, LREG4 to 6 = the constants of the parabola, and the replay buffer = what is done to two vectors that follow each
// other. unbounded: they may lie above exp()'s range; then LREG7 = the highest t.
template <bool unbounded>
inline void prepare(uint32_t scale) {
    using ckernel::p_sfpu;
    prepare_range(scale);
    load<p_sfpu::LREG4>(slope);
    load<p_sfpu::LREG5>(offset);
    load<p_sfpu::LREG6>(rest);
    if constexpr (unbounded) {
        load<p_sfpu::LREG7>(highest);
    }
    lltt::record(first_slot, unbounded ? slots_unbounded : slots);
    TTI_SFPLOAD(p_sfpu::LREG0, 0, ADDR_MOD_3, 0);
    TTI_SFPLOAD(p_sfpu::LREG1, 0, ADDR_MOD_3, vector_rows);
    TTI_SFPMAD(p_sfpu::LREG0, p_sfpu::LREG12, p_sfpu::LREG13, p_sfpu::LREG0, 0);
    TTI_SFPMAD(p_sfpu::LREG1, p_sfpu::LREG12, p_sfpu::LREG13, p_sfpu::LREG1, 0);
    TTI_SFPSWAP(0, p_sfpu::LREG14, p_sfpu::LREG0, highest_to_first);
    TTI_SFPNOP;
    TTI_SFPSWAP(0, p_sfpu::LREG14, p_sfpu::LREG1, highest_to_first);
    TTI_SFPNOP;
    if constexpr (unbounded) {
        TTI_SFPSWAP(0, p_sfpu::LREG7, p_sfpu::LREG0, lowest_to_first);
        TTI_SFPNOP;
        TTI_SFPSWAP(0, p_sfpu::LREG7, p_sfpu::LREG1, lowest_to_first);
        TTI_SFPNOP;
    }
    TTI_SFPSHFT(shift, p_sfpu::LREG0, p_sfpu::LREG0, by_immediate);
    TTI_SFPSHFT(shift, p_sfpu::LREG1, p_sfpu::LREG1, by_immediate);
    TTI_SFPSETEXP(127, p_sfpu::LREG0, p_sfpu::LREG2, by_immediate);
    TTI_SFPSETEXP(127, p_sfpu::LREG1, p_sfpu::LREG3, by_immediate);
    TTI_SFPMAD(p_sfpu::LREG2, p_sfpu::LREG4, p_sfpu::LREG5, p_sfpu::LREG2, 0);
    TTI_SFPMAD(p_sfpu::LREG3, p_sfpu::LREG4, p_sfpu::LREG5, p_sfpu::LREG3, 0);
    TTI_SFPMAD(p_sfpu::LREG2, p_sfpu::LREG2, p_sfpu::LREG6, p_sfpu::LREG2, 0);
    TTI_SFPMAD(p_sfpu::LREG3, p_sfpu::LREG3, p_sfpu::LREG6, p_sfpu::LREG3, 0);
    TTI_SFPSETEXP(0, p_sfpu::LREG2, p_sfpu::LREG0, exponent_of_result);
    TTI_SFPSETEXP(0, p_sfpu::LREG3, p_sfpu::LREG1, exponent_of_result);
    TTI_SFPSTORE(p_sfpu::LREG0, 0, ADDR_MOD_3, 0);
    TTI_SFPSTORE(p_sfpu::LREG1, 0, on_by_a_band, vector_rows);
}

// LREG13 = what makes t that of vector - score, for the bits of a float32 score, to the nearest integer: results then
// differ by a power of two for another score, so that what they are divided by their sum does not.
inline void set_zero(uint32_t score) {
    using ckernel::p_sfpu;
    load<p_sfpu::LREG0>(score ^ 0x80000000);
    load<p_sfpu::LREG1>(bias);
    TTI_SFPMUL(p_sfpu::LREG0, p_sfpu::LREG12, p_sfpu::LCONST_0, p_sfpu::LREG0, 0);
    TTI_SFPNOP;
    TTI_SFP_STOCH_RND(0, 0, 0, p_sfpu::LREG0, p_sfpu::LREG0, to_int16);
    TTI_SFPCAST(p_sfpu::LREG0, p_sfpu::LREG0, 0);
    TTI_SFPADD(p_sfpu::LCONST_1, p_sfpu::LREG0, p_sfpu::LREG1, p_sfpu::LREG0, 0);
    TTI_SFPNOP;
    TTI_SFPCONFIG(0, p_sfpu::LREG13, 0);
}

}  // namespace exponential

// As for_each_half_band, for one of `tiles` tiles after the other.
template <typename Visit>
sfpi_inline void for_each_half_band_of_tiles(uint32_t tiles, Bands bands, Visit visit) {
    for (uint32_t i = 0; i < tiles; ++i) {
        for_each_half_band(bands, visit);
        if (bands.end <= bands_per_face) {  // not led over the lower faces
            for (uint32_t half = 0; half < 4; ++half) {
                sfpi::dst_reg += face_stride / 2;
            }
        }
    }
}

template <uint32_t slots>
inline void exponentiate(uint32_t tiles, Bands bands) {
    for_each_half_band_of_tiles(tiles, bands, [] { lltt::replay(exponential::first_slot, slots); });
}

inline void exponentiate_first_column(Bands bands) {
    for_each_band(bands, [] { lltt::replay(exponential::first_slot, exponential::slots); });
}

template <bool unbounded>
constexpr uint32_t hide_slot =
    unbounded ? exponential::slots_unbounded : exponential::slots;  // of the replay buffer
template <bool unbounded>
constexpr uint32_t hide_slots = unbounded ? 7 : 6;

// LREG7 = the hidden score, and the replay buffer = what is done to a vector: that of register 0 becomes the hidden
// score in lanes where one of those in the two registers behind it is negative. Beside what exponential::prepare()
// leaves: if unbounded, LREG2 = the hidden score for each vector, as LREG7 is in use.
template <bool unbounded>
inline void prepare_hide() {
    using ckernel::p_sfpu;
    constexpr uint32_t lreg = unbounded ? p_sfpu::LREG2 : p_sfpu::LREG7;
    if constexpr (unbounded) {
        lltt::record(hide_slot<unbounded>, hide_slots<unbounded>);
    }
    // -998244352: exp() of it is 0 at any scale in use, and it is far from overflow.
    TTI_SFPLOADI(lreg, sfpi::SFPLOADI_MOD0_FLOATB, 0xCE6E);
    if constexpr (!unbounded) {
        lltt::record(hide_slot<unbounded>, hide_slots<unbounded>);
    }
    TTI_SFPLOAD(p_sfpu::LREG0, 0, ADDR_MOD_3, tile_stride * vector_rows);
    TTI_SFPLOAD(p_sfpu::LREG1, 0, ADDR_MOD_3, 2 * tile_stride * vector_rows);
    TTI_SFPOR(0, p_sfpu::LREG1, p_sfpu::LREG0, 0);  // negative where either is
    TTI_SFPSETCC(0, p_sfpu::LREG0, 0, sfpi::SFPSETCC_MOD1_LREG_LT0);
    TTI_SFPSTORE(lreg, 0, on_by_a_vector, 0);
    TTI_SFPENCC(0, 0, 0, 0);
}

template <bool unbounded>
inline void hide(Bands bands) {
    for_each_half_band(bands, [] {
        lltt::replay(hide_slot<unbounded>, hide_slots<unbounded>);
        lltt::replay(hide_slot<unbounded>, hide_slots<unbounded>);
    });
}

constexpr uint32_t round_slot = hide_slot<false> + hide_slots<false>, round_slots = 4;
// A product takes 9 bits of float32's mantissa of 23 from SrcA, in all fidelity phases. Half of the last of them, and
// the sign, exponent and bits that it takes.
constexpr uint32_t half_a_place = 0x2000, places_taken = 0xC000;  // sign-extended

// The replay buffer = what is done to a vector: half a place is added to its magnitude, and what is below a place is
// cut off.
inline void prepare_round() {
    using ckernel::p_sfpu;
    lltt::record(round_slot, round_slots);
    TTI_SFPLOAD(p_sfpu::LREG0, 0, ADDR_MOD_3, 0);
    TTI_SFPIADD(0, p_sfpu::LREG2, p_sfpu::LREG0, sfpi::SFPIADD_MOD1_CC_NONE);
    TTI_SFPAND(0, p_sfpu::LREG3, p_sfpu::LREG0, 0);
    TTI_SFPSTORE(p_sfpu::LREG0, 0, on_by_a_vector, 0);
}

inline void round(uint32_t tiles, Bands bands) {
    using ckernel::p_sfpu;
    TTI_SFPLOADI(p_sfpu::LREG2, sfpi::SFPLOADI_MOD0_USHORT, half_a_place);
    TTI_SFPLOADI(p_sfpu::LREG3, sfpi::SFPLOADI_MOD0_SHORT, places_taken);
    for_each_half_band_of_tiles(tiles, bands, [] {
        lltt::replay(round_slot, round_slots);
        lltt::replay(round_slot, round_slots);
    });
}

// Where a band starts in a tile, in rows of the destination.
inline uint32_t row_of(uint32_t band) { return (band + band / bands_per_face * bands_per_face) * band_rows; }

// Leaves of the bands of a tile that hold rows first, first + step, ... below `end` the even columns of the left face.
inline void clear_masses(uint32_t first, uint32_t end, uint32_t step) {
    constexpr uint32_t face_rows = face_stride * vector_rows;
    for (uint32_t row = first, cleared = end; row < end; row += step) {
        if (const uint32_t band = row / band_rows; band != cleared) {
            const uint32_t at = row_of(band);
            TT_SFPSTORE(p_sfpu::LCONST_0, 0, ADDR_MOD_3, at + vector_rows);
            TT_SFPSTORE(p_sfpu::LCONST_0, 0, ADDR_MOD_3, at + face_rows);
            TT_SFPSTORE(p_sfpu::LCONST_0, 0, ADDR_MOD_3, at + face_rows + vector_rows);
            cleared = band;
        }
    }
}

// See highest_of. The distances stand in the face to the right meanwhile.
template <uint32_t tiles>
inline void highest_of(Bands bands) {
    for_each_band(bands, [] {
        sfpi::vFloat highest = sfpi::dst_reg[0];
#pragma GCC unroll 4
        for (uint32_t i = 1; i < tiles; ++i) {
            const sfpi::vFloat other = sfpi::dst_reg[i * tile_stride];
            v_if(highest < other) { highest = other; }
            v_endif;
        }
#pragma GCC unroll 4
        for (uint32_t i = 0; i < tiles; ++i) {
            sfpi::dst_reg[i * tile_stride + face_stride] = sfpi::dst_reg[i * tile_stride] - highest;
        }
        sfpi::dst_reg[0] = highest;
        sfpi::dst_reg += band_stride;
    });
}

// See rescales_of.
inline void exponentiate_distance(Bands bands, uint32_t scale) {
    for_each_band(bands, [scale] {
        sfpi::dst_reg[0] = sfpi::dst_reg[face_stride] * ckernel::sfpu::Converter::as_float(scale);
        ckernel::sfpu::calculate_exponential<false, true, false, 1, true>();
        sfpi::dst_reg += band_stride - 1;
    });
}

// LREG0 and LREG1 += the squares of the even and the odd columns of a band, in the first `tiles` tiles. By hand: the
// compiler would load more vectors ahead than there are registers.
template <uint32_t tiles>
inline void add_squares() {
    using ckernel::p_sfpu;
    if constexpr (tiles > 0) {
        add_squares<tiles - 1>();
        constexpr uint32_t left = (tiles - 1) * tile_stride * vector_rows;
        constexpr uint32_t right = left + face_stride * vector_rows;
        TTI_SFPLOAD(p_sfpu::LREG2, 0, ADDR_MOD_3, left);
        TTI_SFPLOAD(p_sfpu::LREG3, 0, ADDR_MOD_3, left + vector_rows);
        TTI_SFPMAD(p_sfpu::LREG2, p_sfpu::LREG2, p_sfpu::LREG0, p_sfpu::LREG0, 0);
        TTI_SFPMAD(p_sfpu::LREG3, p_sfpu::LREG3, p_sfpu::LREG1, p_sfpu::LREG1, 0);
        TTI_SFPLOAD(p_sfpu::LREG2, 0, ADDR_MOD_3, right);
        TTI_SFPLOAD(p_sfpu::LREG3, 0, ADDR_MOD_3, right + vector_rows);
        TTI_SFPMAD(p_sfpu::LREG2, p_sfpu::LREG2, p_sfpu::LREG0, p_sfpu::LREG0, 0);
        TTI_SFPMAD(p_sfpu::LREG3, p_sfpu::LREG3, p_sfpu::LREG1, p_sfpu::LREG1, 0);
    }
}

// Row i of LREG0 = the sum of the four rows of LREGi, which SFPTRANSP makes the i-th rows of LREG0 to 3.
inline void add_rows() {
    using ckernel::p_sfpu;
    TTI_SFPTRANSP(0, 0, 0, 0);
    TTI_SFPADD(p_sfpu::LCONST_1, p_sfpu::LREG0, p_sfpu::LREG1, p_sfpu::LREG0, 0);
    TTI_SFPADD(p_sfpu::LCONST_1, p_sfpu::LREG2, p_sfpu::LREG3, p_sfpu::LREG2, 0);
    TTI_SFPNOP;
    TTI_SFPADD(p_sfpu::LCONST_1, p_sfpu::LREG0, p_sfpu::LREG2, p_sfpu::LREG0, 0);
    TTI_SFPNOP;
}

// LREG0 += LREG0 of the column `distance` to the left, of 8 in a ring.
template <uint32_t distance>
inline void add_rotated() {
    using ckernel::p_sfpu;
    constexpr uint32_t rotate = 3;  // SFPSHFT2's mode SUBVEC_SHFLROR1: by one column
    TTI_SFPSHFT2(0, p_sfpu::LREG0, p_sfpu::LREG1, rotate);
    TTI_SFPNOP;
#pragma GCC unroll 3
    for (uint32_t step = 1; step < distance; ++step) {
        TTI_SFPSHFT2(0, p_sfpu::LREG1, p_sfpu::LREG1, rotate);
        TTI_SFPNOP;
    }
    TTI_SFPADD(p_sfpu::LCONST_1, p_sfpu::LREG0, p_sfpu::LREG1, p_sfpu::LREG0, 0);
    TTI_SFPNOP;
}

// LREG0 = the sum of squares over bands and columns of one parity, lane by lane. An instruction must not follow at once
// on the multiplication or addition whose result it reads: hence the SFPNOPs, here and below.
template <uint32_t tiles>
inline void sum_squares(Bands bands) {
    using ckernel::p_sfpu;
    TTI_SFPLOADI(p_sfpu::LREG0, sfpi::SFPLOADI_MOD0_FLOATB, 0);
    TTI_SFPLOADI(p_sfpu::LREG1, sfpi::SFPLOADI_MOD0_FLOATB, 0);
    for_each_band(bands, [] {
        add_squares<tiles>();
        sfpi::dst_reg += band_stride;
    });
    TTI_SFPNOP;
    TTI_SFPADD(p_sfpu::LCONST_1, p_sfpu::LREG0, p_sfpu::LREG1, p_sfpu::LREG0, 0);
    TTI_SFPNOP;
}

template <uint32_t tiles>
inline void hold_sum_of_squares(Bands bands) {
    sum_squares<tiles>(bands);
    TTI_SFPMOV(0, ckernel::p_sfpu::LREG0, ckernel::p_sfpu::LREG4, 0);
}

template <uint32_t tiles>
inline void sums_of_squares(Bands bands, uint32_t factor) {
    using ckernel::p_sfpu;
    sum_squares<tiles>(bands);
    TTI_SFPMOV(0, p_sfpu::LREG4, p_sfpu::LREG1, 0);
    add_rows();
    add_rotated<1>();
    add_rotated<2>();
    add_rotated<4>();
    TT_SFPLOADI(p_sfpu::LREG1, sfpi::SFPLOADI_MOD0_LOWER, factor & 0xFFFF);
    TT_SFPLOADI(p_sfpu::LREG1, sfpi::SFPLOADI_MOD0_UPPER, factor >> 16);
    ckernel::math::reset_counters(ckernel::p_setrwc::SET_D);
    TTI_SFPMUL(p_sfpu::LREG0, p_sfpu::LREG1, p_sfpu::LCONST_0, p_sfpu::LREG1, 0);
    TTI_SFPSTORE(p_sfpu::LREG0, 0, ADDR_MOD_3, 0);
    TTI_SFPSTORE(p_sfpu::LREG1, 0, ADDR_MOD_3, vector_rows);
}

}  // namespace register_rows::vector

#endif

namespace register_rows {

// What is packed next waits for the vector unit.
inline void finish() { PACK((TTI_STALLWAIT(ckernel::p_stall::STALL_PACK, ckernel::p_stall::WAIT_SFPU))); }

inline void divide_init() {
    PACK((llk_math_eltwise_unary_sfpu_init<SfpuType::reciprocal>(
        ckernel::sfpu::recip_init<false, true, false>)));
}

// Registers [0, tiles) /= register `tiles`, whose rows hold one value each, in all columns.
template <uint32_t tiles>
inline void divide([[maybe_unused]] Bands bands) {
    PACK((_llk_math_eltwise_unary_sfpu_params_(vector::divide<tiles>, 0, ckernel::VectorMode::None, bands)));
}

// For exponentiate(), exponentiate_first_column(), hide() and round(): in force until divide_init() or
// rescales_init().
inline void prepare([[maybe_unused]] uint32_t scale) {
    PACK((_llk_math_eltwise_unary_sfpu_init_<SfpuType::unused>()));
    PACK((vector::prepare_moves()));
    PACK((vector::exponential::prepare<false>(scale)));
    PACK((vector::prepare_hide<false>()));
    PACK((vector::prepare_round()));
}
// For exponentiate_unbounded() and hide(), likewise.
inline void prepare_unbounded([[maybe_unused]] uint32_t scale) {
    PACK((_llk_math_eltwise_unary_sfpu_init_<SfpuType::unused>()));
    PACK((vector::prepare_moves()));
    PACK((vector::exponential::prepare<true>(scale)));
    PACK((vector::prepare_hide<true>()));
}
inline void rescales_init() { ckernel::exp_packthread_tile_init(); }

// Registers [0, tiles) = exp(register * scale) with the accuracy of bfloat16.
inline void exponentiate([[maybe_unused]] uint32_t tiles, [[maybe_unused]] Bands bands) {
    PACK((_llk_math_eltwise_unary_sfpu_params_(
        vector::exponentiate<vector::exponential::slots>, 0, ckernel::VectorMode::None, tiles, bands)));
}

// After prepare_unbounded(): exponentials are of register - `score`, the bits of a float32.
inline void relative_to([[maybe_unused]] uint32_t score) { PACK((vector::exponential::set_zero(score))); }

// The same of what may lie above exp()'s range: there it is 2^127 to 2^128.
inline void exponentiate_unbounded([[maybe_unused]] uint32_t tiles, [[maybe_unused]] Bands bands) {
    PACK((_llk_math_eltwise_unary_sfpu_params_(
        vector::exponentiate<vector::exponential::slots_unbounded>, 0, ckernel::VectorMode::None, tiles,
        bands)));
}

// Column 0 of register 0 = exp(column * scale), as exponentiate() has it.
inline void exponentiate_first_column([[maybe_unused]] Bands bands) {
    PACK((_llk_math_eltwise_unary_sfpu_params_(
        vector::exponentiate_first_column, 0, ckernel::VectorMode::None, bands)));
}

// Elements of register `index` become a score that hides its key, whatever they were, where one of the two registers
// behind it is negative.
template <bool unbounded = false>
inline void hide([[maybe_unused]] uint32_t index, [[maybe_unused]] Bands bands) {
    PACK((_llk_math_eltwise_unary_sfpu_params_(
        vector::hide<unbounded>, index, ckernel::VectorMode::None, bands)));
}

// Registers [0, tiles) become the nearest numbers that a product takes whole from SrcA.
inline void round([[maybe_unused]] uint32_t tiles, [[maybe_unused]] Bands bands) {
    PACK((_llk_math_eltwise_unary_sfpu_params_(vector::round, 0, ckernel::VectorMode::None, tiles, bands)));
}

// Clears the columns of masses (mass_columns.hpp) of rows first, first + step, ... below `end` of register `index`, after
// that has been packed.
inline void clear_masses(
    [[maybe_unused]] uint32_t index,
    [[maybe_unused]] uint32_t first,
    [[maybe_unused]] uint32_t end,
    [[maybe_unused]] uint32_t step) {
    PACK((TTI_STALLWAIT(ckernel::p_stall::STALL_SFPU, ckernel::p_stall::PACK)));
    PACK((_llk_math_eltwise_unary_sfpu_params_(
        vector::clear_masses, index, ckernel::VectorMode::None, first, end, step)));
}

// Column 0 of registers [0, tiles) holds maxima of each row: that of register 0 = the highest. The registers keep what
// rescales_of() needs.
template <uint32_t tiles>
inline void highest_of([[maybe_unused]] Bands bands) {
    PACK((_llk_math_eltwise_unary_sfpu_params_(
        vector::highest_of<tiles>, 0, ckernel::VectorMode::None, bands)));
}

// Column 0 of registers [0, tiles) = exp((theirs - the highest) * scale), with the accuracy of float32. After highest_of(),
// whose result has been packed, and rescales_init().
inline void rescales_of(
    [[maybe_unused]] uint32_t tiles, [[maybe_unused]] Bands bands, [[maybe_unused]] uint32_t scale) {
    PACK((TTI_STALLWAIT(ckernel::p_stall::STALL_SFPU, ckernel::p_stall::PACK)));
    for (uint32_t i = 0; i < tiles; ++i) {
        PACK((_llk_math_eltwise_unary_sfpu_params_(
            vector::exponentiate_distance, i, ckernel::VectorMode::None, bands, scale)));
    }
}

// Holds the sum of squares over registers [0, tiles), for the next sums_of_squares(). The vector unit must do nothing
// else in between.
template <uint32_t tiles>
inline void hold_sum_of_squares([[maybe_unused]] Bands bands) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(
        vector::hold_sum_of_squares<tiles>, 0, ckernel::VectorMode::None, bands)));
}

// Column 0 of register 0 = in row 0 the sum of squares over registers [0, tiles), in row 1 the one held; column 1 =
// those times `factor`, the bits of a float32. The rest of its first four rows holds nothing.
template <uint32_t tiles>
inline void sums_of_squares([[maybe_unused]] Bands bands, [[maybe_unused]] uint32_t factor) {
    MATH((_llk_math_eltwise_unary_sfpu_params_(
        vector::sums_of_squares<tiles>, 0, ckernel::VectorMode::None, bands, factor)));
}

}  // namespace register_rows
