// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

#pragma once

#include <cstdint>

constexpr uint32_t most_tiles = 14;

// The heaviest tiles of those that are offered, at most `limit`, which is 1 to most_tiles; of equal ones the first offered.
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

    // Calls visit(tile) for each of them.
    template <typename Visit>
    void for_each(Visit visit) const {
        for (uint32_t i = 0; i < count_; ++i) {
            visit(tiles_[i]);
        }
    }

private:
    uint32_t limit_, count_ = 0;
    uint32_t lowest_ = 0;  // what is not above this is not among them: tiles without mass never are
    uint32_t masses_[most_tiles], tiles_[most_tiles];
};
