// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Two rows of a query tile that its head does not use find NaN and infinities in the keys it attends to. The matrix
// unit takes them for numbers of 2^128 and more, so a query's score with such a key is far above all others, or far below
// them and then without weight; its result would be finite, and wrong. The score with the one probe is huge, or that with
// the other, which is its negative.
//
// The probes' elements are of different sizes, so that two infinities do not cancel. Their row maxima, like those of the
// queries, are compared with a bound that no score of finite keys reaches. Where one is above it, all row maxima become
// `broken`, which outlasts every merge, and the result becomes NaN.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "tt_kernels/common/kernels/tile_rows.hpp"

namespace probe_rows {

constexpr uint32_t tile_height = 32, probes = 2;
using config::band_rows;
constexpr uint32_t elements = 32;  // of a row of a tile
// The bits of bfloat16 numbers.
constexpr uint16_t one = 0x3F80, sign = 0x8000;
constexpr uint16_t bound = 0x7000;   // 2^97: of 2^128 times the least element of a probe
constexpr uint16_t broken = 0x7F00;  // 2^127: finite, so that differences of it are

// The first of the probes' rows behind the `rows` of a head: of a band that it has no row in, so that they are neither
// computed with nor sent. tile_height if there is none; the head's own row maxima have to do then.
inline uint32_t row_behind(uint32_t rows) { return (rows + band_rows - 1) / band_rows * band_rows; }

#if !defined(COMPILE_FOR_TRISC)

// Writes the probes into the tiles of queries from `address` on, behind a head of so many rows.
inline void write(uint32_t address, uint32_t rows) {
    constexpr uint32_t pairs = elements / 2 / tile_rows::faces_across;  // in a face
    const uint32_t row = row_behind(rows);
    if (row == tile_height) {
        return;
    }
    for (uint32_t tile = 0; tile < config::head_tiles; ++tile) {
        for (uint32_t probe = 0; probe < probes; ++probe) {
            // Half the size from one element to the next, a quarter more from one tile to the next.
            const uint32_t first = one + (tile << 5) + probe * sign;
            uint32_t pair = (first - 0x80) << 16 | first;
            for (uint32_t face = 0; face < tile_rows::faces_across; ++face) {
                volatile tt_l1_ptr uint32_t* words = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(
                    address + tile * tile_rows::tile_bytes + tile_rows::offset_of(row + probe) +
                    face * tile_rows::face_bytes);
#pragma GCC unroll 8
                for (uint32_t i = 0; i < pairs; ++i) {
                    words[i] = pair;
                    pair -= 0x01000100;
                }
                (void)words[pairs - 1];  // read back: they have reached L1
            }
        }
    }
}

#else

#if defined(TRISC_UNPACK)

// Bits of a word that are set where one of its two row maxima is out of bounds: of [bound, sign).
inline uint32_t broken_bits(uint32_t pair) {
    return pair & pair << 1 & pair << 2 & ~(pair >> 1) & 0x40004000;
}
static_assert(bound == 0x7000 && sign == 0x8000);

inline uint32_t address_of(uint32_t cb, uint32_t offset) {
    return (get_local_cb_interface(cb).fifo_rd_ptr << 4) + offset;
}

// The row maxima of `row` and the next one, an even and an odd row, where online_softmax::raise_row_max() leaves them
// side by side: in row 0 of the left faces.
inline uint32_t pair_of(uint32_t row_max, uint32_t row) {
    const uint32_t first = row / tile_rows::face_rows * tile_rows::face_rows;
    return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(
        address_of(row_max, tile_rows::offset_of(first)))[(row - first) / 2];
}

inline volatile tt_l1_ptr uint16_t* in_column_0(uint32_t row_max, uint32_t row) {
    return reinterpret_cast<volatile tt_l1_ptr uint16_t*>(address_of(row_max, tile_rows::offset_of(row)));
}

#endif

// Makes the row maxima of a head of so many rows `broken` in column 0 if one of them or of the probes is out of bounds.
// `row_max` is waited for.
inline void mark([[maybe_unused]] uint32_t row_max, [[maybe_unused]] uint32_t rows) {
    UNPACK(({
        const uint32_t probe = row_behind(rows);
        uint32_t bits = probe == tile_height ? 0 : broken_bits(pair_of(row_max, probe));
        for (uint32_t row = 0; row < rows; row += 2) {
            bits |= broken_bits(pair_of(row_max, row) & (row + 1 < rows ? 0xFFFFFFFF : 0xFFFF));
        }
        for (uint32_t row = 0; bits != 0 && row < rows; ++row) {
            *in_column_0(row_max, row) = broken;
            (void)*in_column_0(row_max, row);  // read back: it has reached L1
        }
    }));
}

#endif

}  // namespace probe_rows
