// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Tiles between the two ends of the cache that a head's guess reads too; for readers. A list is data: a row of words per
// user and key/value head (tt_kernels/speculative_flash_decode/guess_range.py writes the same). Rows of the cache are
// renumbered so that the listed tiles follow the first ones: everything but the reader sees a longer first range.

#pragma once

#include <cstdint>

namespace tile_list {

constexpr uint32_t row_bytes = 64;
constexpr uint32_t tokens_word =
    0;  // cached tokens of the step that the list is for; another step ignores it
constexpr uint32_t count_word = 1;
constexpr uint32_t first_tile = 2;  // words: tiles, ascending
constexpr uint32_t max_tiles = row_bytes / sizeof(uint32_t) - first_tile;

using Row = volatile uint32_t*;

// Moves those tiles of a row to its start that are in [begin, end) and above the one before, at most `limit`; returns
// how many. So no content of the row makes a head read a tile twice or outside its cache.
inline uint32_t keep(Row row, uint32_t tokens, uint32_t begin, uint32_t end, uint32_t limit) {
    if (row[tokens_word] != tokens) {
        return 0;
    }
    limit = limit < max_tiles ? limit : max_tiles;
    const uint32_t listed = row[count_word] < max_tiles ? row[count_word] : max_tiles;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < listed && kept < limit; ++i) {
        const uint32_t tile = row[first_tile + i];
        if (tile >= begin && tile < end) {
            row[first_tile + kept++] = tile;
            begin = tile + 1;
        }
    }
    return kept;
}

// The heaviest tiles of those that are offered, at most `limit`, which is 1 to max_tiles; of equal ones the first offered.
class Heaviest {
public:
    explicit Heaviest(uint32_t limit) : limit_(limit) {}

    void offer(uint32_t tile, uint32_t mass) {
        if (mass <= lowest_) {
            return;
        }
        uint32_t place = count_ < limit_ ? count_++ : limit_ - 1;
        for (; place > 0 && masses_[place - 1] < mass; --place) {
            masses_[place] = masses_[place - 1];
            tiles_[place] = tiles_[place - 1];
        }
        masses_[place] = mass;
        tiles_[place] = tile;
        if (count_ == limit_) {
            lowest_ = masses_[limit_ - 1];
        }
    }

    // Writes them into a row, for a step with `tokens` cached tokens.
    void write(Row row, uint32_t tokens) const {
        row[tokens_word] = tokens;
        row[count_word] = count_;
        for (uint32_t i = 0; i < count_; ++i) {
            uint32_t at = i;
            for (; at > 0 && row[first_tile + at - 1] > tiles_[i]; --at) {
                row[first_tile + at] = row[first_tile + at - 1];
            }
            row[first_tile + at] = tiles_[i];
        }
    }

private:
    uint32_t limit_, count_ = 0;
    uint32_t lowest_ = 0;  // what is not above this is not among them: tiles without mass never are
    uint32_t masses_[max_tiles], tiles_[max_tiles];
};

// Head rows (head_rows.hpp) in the order: the first tiles, `count` listed ones, all others.
template <typename Rows>
struct Renumbered {
    Rows rows;
    Row tiles;
    uint32_t first;
    uint32_t count;

    uint32_t page(uint32_t row) const {
        if (row < first) {
            return rows.page(row);
        }
        if (row < first + count) {
            return rows.page(tiles[row - first]);
        }
        uint32_t tile = row - count;
        for (uint32_t i = 0; i < count && tiles[i] <= tile; ++i) {
            ++tile;
        }
        return rows.page(tile);
    }
};

}  // namespace tile_list
