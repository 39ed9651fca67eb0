// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// NaN in results, for data movement kernels: the matrix unit copies NaN of bfloat16 as an infinity, and packing makes one
// of NaN. A sum of squares that is not finite says in a word that a row may hold some; only then are its numbers looked
// at, in float32 and as they came.

#pragma once

#include <cstdint>

#include "config.hpp"

namespace not_finite {

constexpr uint32_t infinite = 0x7F800000, nan = 0x7FC00000;
constexpr uint32_t columns = 16, face_words = config::exact_face_bytes / sizeof(uint32_t),
                   tile_words = 4 * face_words;

inline volatile tt_l1_ptr uint32_t* words(uint32_t l1) {
    return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(l1);
}
inline volatile tt_l1_ptr uint16_t* halves(uint32_t l1) {
    return reinterpret_cast<volatile tt_l1_ptr uint16_t*>(l1);
}

inline uint32_t magnitude(uint32_t l1, uint32_t word) { return words(l1)[word] & 0x7FFFFFFF; }

// Where a user's row begins in a tile, if users have a row each.
constexpr uint32_t row(uint32_t user) {
    return user / config::face_rows * 2 * face_words + user % config::face_rows * columns;
}

// Calls visit(element) for each of a user's numbers in this worker's tiles.
template <typename Visit>
inline void for_each_element(uint32_t user, Visit visit) {
    constexpr uint32_t runs = config::dense ? 1 : 2 * config::blocks;
    constexpr uint32_t length = config::dense ? config::chunk_bytes / sizeof(uint16_t) : columns;
    for (uint32_t run = 0; run < runs; ++run) {
        const uint32_t first = config::dense ? 0 : run / 2 * tile_words + run % 2 * face_words + row(user);
        for (uint32_t element = first; element < first + length; ++element) {
            visit(element);
        }
    }
}

// Whether a sum is NaN: it became so, or a summand was.
inline bool is_nan(uint32_t element) {
    const auto came_as_nan = [element](uint32_t l1) {
        return (halves(l1)[element] & 0x7FFF) > infinite >> 16;
    };
    bool found = magnitude(get_read_ptr(config::cb_exact), element) > infinite;
    for (uint32_t chip = 0; chip < config::chips; ++chip) {
        found = found || came_as_nan(get_read_ptr(config::cb_parts) + chip * config::block_bytes);
    }
    if constexpr (config::has_residual) {
        found = found || came_as_nan(get_read_ptr(config::cb_residual));
    }
    return found;
}

// This worker's sums of squares: NaN for rows with NaN. Call it before other workers get them.
inline void mend_squares(uint32_t squares) {
    for (uint32_t user = 0; user < config::users; ++user) {
        if (magnitude(squares, row(user)) >= infinite) {
            for_each_element(user, [&](uint32_t element) {
                if (is_nan(element)) {
                    words(squares)[row(user)] = nan;
                }
            });
        }
    }
}

// The rounded sums, given this worker's sums of squares.
inline void mend_sum(uint32_t squares, uint32_t rounded) {
    for (uint32_t user = 0; user < config::users; ++user) {
        if (magnitude(squares, row(user)) >= infinite) {
            for_each_element(user, [&](uint32_t element) {
                if (is_nan(element)) {
                    halves(rounded)[element] = nan >> 16;
                }
            });
        }
    }
}

// The largest of the workers' sums of squares of a user's row, or NaN. squares: as they came.
inline uint32_t largest_square(uint32_t squares, uint32_t user) {
    uint32_t square = 0;
    for (uint32_t worker = 0; worker < config::workers; ++worker) {
        const uint32_t word = config::dense ? worker * columns : worker * tile_words + row(user);
        const uint32_t own = magnitude(squares, word);
        square = own > square ? own : square;
    }
    return square;
}

inline bool all_finite(uint32_t squares) {
    bool finite = true;
    for (uint32_t user = 0; user < config::users; ++user) {
        finite = finite && largest_square(squares, user) < infinite;
    }
    return finite;
}

// The norm, given all workers' sums of squares: beside an infinity 0 where the row is finite and else NaN; beside NaN NaN.
inline void mend_norm(uint32_t squares, uint32_t normed) {
    const uint32_t exact = get_read_ptr(config::cb_exact);
    for (uint32_t user = 0; user < config::users; ++user) {
        const uint32_t square = largest_square(squares, user);
        if (square >= infinite) {
            for_each_element(user, [&](uint32_t element) {
                const bool finite = square == infinite && magnitude(exact, element) < infinite;
                halves(normed)[element] = finite ? 0 : nan >> 16;
            });
        }
    }
}

}  // namespace not_finite
