// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Which key tiles each worker of a head reads, and in which order (ALSpec paper, algorithm 3, lines 12-19).
// All units are tiles of 32 cached tokens. Every RISC-V of every core derives its part from the token count alone, so
// nothing about the split is ever sent. tt_kernels/speculative_flash_decode/work_split.py mirrors it on the host.

#pragma once

#include <cstdint>

namespace attention {

constexpr uint32_t tile_tokens = 32;

// Tiles [begin, end).
struct Range {
    uint32_t begin;
    uint32_t end;

    uint32_t size() const { return end - begin; }
};

// A worker's part of one head: the guess's two ranges (the speculative worker only, or a slice of them if only the
// guess is computed), then a slice of the middle.
struct Part {
    Range first;
    Range last;
    Range middle;

    uint32_t tiles() const { return first.size() + last.size() + middle.size(); }
};

// Worker 0 of a group is its reducer. The guess has a worker of its own if there are several, which receives nothing in
// the merge (merge_tree.hpp).
constexpr uint32_t reducer = 0;

// By value, unlike std::min and std::max, whose references cost instructions.
inline uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }
inline uint32_t max(uint32_t a, uint32_t b) { return a < b ? b : a; }

inline uint32_t tiles_of(uint32_t tokens) { return (tokens + tile_tokens - 1) / tile_tokens; }

// The share of the `index`th of `count` workers in `tiles` dealt evenly, the larger shares first.
inline Range share_of(uint32_t tiles, uint32_t index, uint32_t count) {
    const uint32_t share = tiles / count;
    const uint32_t larger = tiles % count;
    const uint32_t begin = index * share + min(index, larger);
    return {begin, begin + share + (index < larger ? 1 : 0)};
}

// What the guess reads, in tiles from either end (tt_kernels/speculative_flash_decode/guess_range.py).
struct GuessRange {
    uint32_t first;
    uint32_t last;
    bool whole_tail;     // one more tile at the end if the last one is not full
    bool alone = false;  // only the guess is read, by all workers
    uint32_t after = 0;  // the last tokens: a token tree's but for its root, which the tail is that of
    // At most so many between the ends (tile_list.hpp), which part_of() takes as some more of `first`.
    uint32_t tiles = 0;

    uint32_t tail(uint32_t tokens) const {
        const uint32_t own = tokens - after;
        return last + (whole_tail && own % tile_tokens != 0 ? 1 : 0) + tiles_of(tokens) - tiles_of(own);
    }
    bool bypassed(uint32_t tokens) const { return tokens - after < (first + tiles + last) * tile_tokens; }
};

// As the speculative worker: there is none.
constexpr uint32_t nobody = 0xFFFFFFFF;

// The part of `worker` of `workers` for a user with `tokens` cached tokens. speculative_worker: the one that has the
// guess, or `nobody`. The guess reads the two ends, which are everything if they meet. Without speculation the middle is
// everything, or nothing if only the guess is computed. Tiles are dealt so that all workers read about the same number;
// the speculative worker, which also emits the guess, reads more than the others only if the guess itself is more. The
// reducer's slice is empty only if the middle is.
inline Part part_of(
    uint32_t tokens, const GuessRange& ends, uint32_t worker, uint32_t workers, uint32_t speculative_worker) {
    const bool speculate = speculative_worker != nobody;
    const uint32_t total = tiles_of(tokens);
    const bool split = speculate || ends.alone;
    const uint32_t first_end = split ? min(ends.first, total) : 0;
    const uint32_t tail = ends.tail(tokens);
    const uint32_t last_begin = split ? (total > ends.first + tail ? total - tail : first_end) : total;
    const uint32_t middle = last_begin - first_end;
    const uint32_t guess = total - middle;

    const bool speculative = speculate && worker == speculative_worker;
    Part part{{0, 0}, {0, 0}, {first_end, first_end}};
    if (ends.alone) {
        // As if the two ends were adjacent.
        const Range share = share_of(guess, worker, workers);
        part.middle = {0, 0};
        part.first = {min(share.begin, first_end), min(share.end, first_end)};
        if (share.end > first_end) {
            part.last = {middle + max(share.begin, first_end), middle + share.end};
        }
        return part;
    }
    if (speculative) {
        part.first = {0, first_end};
        part.last = {last_begin, total};
    }

    // The speculative worker fills up to an even share and takes its slice from the end of the middle.
    uint32_t speculative_share = 0;
    if (speculate) {
        const uint32_t even = total / workers;
        speculative_share = workers == 1 ? middle : (even > guess ? min(even - guess, middle) : 0);
    }
    if (speculative) {
        part.middle = {last_begin - speculative_share, last_begin};
        return part;
    }
    const uint32_t others = speculate ? workers - 1 : workers;
    const uint32_t index = speculate && worker > speculative_worker ? worker - 1 : worker;
    const Range share = share_of(middle - speculative_share, index, others);
    part.middle = {first_end + share.begin, first_end + share.end};
    return part;
}

// Columns of the last tile that hold cached tokens: 1 to 32.
inline uint32_t tokens_in_last_tile(uint32_t tokens) { return (tokens - 1) % tile_tokens + 1; }

// Whether tiles that end at `end` end in a partly filled tile.
inline bool ends_partly(uint32_t end, uint32_t tokens) {
    return tokens % tile_tokens != 0 && end == tokens / tile_tokens + 1;
}

// Whether that tile is in `part`, which must not be empty.
inline bool needs_mask(const Part& part, uint32_t tokens) {
    return ends_partly(part.first.end, tokens) || ends_partly(part.last.end, tokens) ||
           ends_partly(part.middle.end, tokens);
}

}  // namespace attention
