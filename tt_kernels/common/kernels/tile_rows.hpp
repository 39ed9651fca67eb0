// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Rows inside a tile of 32 x 32 two-byte elements: four faces of 16 x 16, row-major, in row-major order.

#pragma once

#include <cstdint>

namespace tile_rows {

constexpr uint32_t tile_height = 32, face_rows = 16;
constexpr uint32_t faces_across = 2;
constexpr uint32_t row_bytes = 16 * 2;  // the part of a row in one face
constexpr uint32_t face_bytes = face_rows * row_bytes;
constexpr uint32_t tile_bytes = 4 * face_bytes;

// In a bfloat8_b tile: a byte of exponent for each row of each face, then a byte for each element.
constexpr uint32_t exponents_bytes = tile_bytes / row_bytes;
constexpr uint32_t block_float_tile_bytes = exponents_bytes + tile_bytes / 2;

// Calls visit(offset, bytes) for each contiguous piece of rows [begin, end) of a tile.
template <typename Visit>
inline void for_each_piece(uint32_t begin, uint32_t end, Visit visit) {
    while (begin < end) {
        const uint32_t face_row = begin / face_rows;
        const uint32_t face_end = (face_row + 1) * face_rows;
        const uint32_t stop = end < face_end ? end : face_end;
        for (uint32_t face = 0; face < faces_across; ++face) {
            visit(
                (face_row * faces_across + face) * face_bytes + begin % face_rows * row_bytes,
                (stop - begin) * row_bytes);
        }
        begin = stop;
    }
}

// Where a row starts in the left face of its tile.
constexpr uint32_t offset_of(uint32_t row) {
    return row % tile_height / face_rows * faces_across * face_bytes + row % face_rows * row_bytes;
}

constexpr uint32_t left_in_face(uint32_t row) { return face_rows - row % face_rows; }

// Calls visit(from_offset, to_offset, bytes) for each contiguous piece of `rows` rows that lie from row `from` on in one
// tile, and from row `to` on in another.
template <typename Visit>
inline void for_each_common_piece(uint32_t from, uint32_t to, uint32_t rows, Visit visit) {
    for (uint32_t row = 0; row < rows;) {
        const uint32_t a = left_in_face(from + row), b = left_in_face(to + row), left = rows - row;
        const uint32_t both = a < b ? a : b, run = both < left ? both : left;
        for (uint32_t face = 0; face < faces_across; ++face) {
            visit(
                offset_of(from + row) + face * face_bytes, offset_of(to + row) + face * face_bytes,
                run * row_bytes);
        }
        row += run;
    }
}

}  // namespace tile_rows
