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

// A worker's part of one head: what it reads of the guess's two ranges, then a slice of the middle.
struct Part {
    Range first;
    Range last;
    Range middle;

    uint32_t guess_tiles() const { return first.size() + last.size(); }
    uint32_t tiles() const { return guess_tiles() + middle.size(); }
};

// Worker 0 of a group is its reducer (merge_tree.hpp).
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
    uint32_t after = 0;  // the last tokens: a token tree's but for its root, which the tail is that of

    uint32_t tail(uint32_t tokens) const {
        const uint32_t own = tokens - after;
        return last + (whole_tail && own % tile_tokens != 0 ? 1 : 0) + tiles_of(tokens) - tiles_of(own);
    }
    bool bypassed(uint32_t tokens) const { return tokens - after < 2 * max(first, last) * tile_tokens; }
};

// A head's tiles: those of the guess at either end, which are everything if they meet, and the rest between them.
struct Ends {
    Ends(uint32_t tokens, const GuessRange& guess) : total(tiles_of(tokens)) {
        const uint32_t tail = guess.tail(tokens);
        first_end = min(guess.first, total);
        last_begin = total > guess.first + tail ? total - tail : first_end;
    }
    explicit Ends(uint32_t tokens) : total(tiles_of(tokens)), first_end(0), last_begin(total) {}  // no guess

    uint32_t rest() const { return last_begin - first_end; }
    uint32_t guess() const { return total - rest(); }

    uint32_t total, first_end, last_begin;
};

// Which tiles the workers of a head read: each its share of the guess's, as if the two ends were adjacent, and of the
// rest. Who merges partial results of the guess (merge_tree.hpp) starts the rest that much later, and has that much less
// of it where there is enough.
class EvenSplit {
public:
    EvenSplit(const Ends& ends, uint32_t workers) : ends_(ends), workers_(workers) {
        const uint32_t late = lateness_before(workers), latest = lateness_before(1);
        late_ = ends.guess() > 0 && (ends.rest() + late) / workers > latest ? late : 0;
    }

    bool has_guess(uint32_t worker) const { return worker < ends_.guess(); }
    bool has_rest(uint32_t worker) const { return late_ > 0 || worker < ends_.rest(); }

    Part part(uint32_t worker) const {
        const uint32_t first_end = ends_.first_end;
        const Range guess = share_of(ends_.guess(), worker, workers_);
        Range rest = share_of(ends_.rest() + late_, worker, workers_);
        if (late_ > 0) {
            rest.begin -= lateness_before(worker);
            rest.end -= lateness_before(worker + 1);
        }
        Part part{{min(guess.begin, first_end), min(guess.end, first_end)}, {0, 0}, {0, 0}};
        if (guess.end > first_end) {
            part.last = {ends_.rest() + max(guess.begin, first_end), ends_.rest() + guess.end};
        }
        part.middle = {first_end + rest.begin, first_end + rest.end};
        return part;
    }

private:
    // The tiles that a worker could read while it merges a partial result; and emits the guess, the reducer.
    static constexpr uint32_t tiles_of_merge = 1, tiles_of_emission = 1;

    // How late all workers before this one are together, in tiles.
    uint32_t lateness_before(uint32_t worker) const {
        uint32_t merges = 0;
        for (uint32_t level = 0; 1u << level < workers_; ++level) {
            const uint32_t every = 2u << level;  // worker receives at this level
            merges += (min(worker, workers_ - (1u << level)) + every - 1) / every;
        }
        return merges * tiles_of_merge + (merges > 0 ? tiles_of_emission : 0);
    }

    Ends ends_;
    uint32_t workers_;
    uint32_t late_;  // all of them, as far as it counts
};

// For a head whose guess one worker makes, which receives nothing in the merge if there are several. As the speculative worker: there is none.
constexpr uint32_t nobody = 0xFFFFFFFF;

// The part of `worker` of `workers` for a user with `tokens` cached tokens. speculative_worker: the one that has the
// guess, or `nobody`: the middle is everything then. Tiles are dealt so that all workers read about the same number; the
// speculative worker, which also emits the guess, reads more than the others only if the guess itself is more. The
// reducer's slice is empty only if the middle is.
inline Part part_of(
    uint32_t tokens,
    const GuessRange& guess,
    uint32_t worker,
    uint32_t workers,
    uint32_t speculative_worker) {
    const bool speculate = speculative_worker != nobody;
    const Ends ends = speculate ? Ends(tokens, guess) : Ends(tokens);
    const uint32_t middle = ends.rest();

    // The speculative worker fills up to an even share and takes its slice from the end of the middle.
    uint32_t speculative_share = 0;
    if (speculate) {
        const uint32_t even = ends.total / workers;
        speculative_share =
            workers == 1 ? middle : (even > ends.guess() ? min(even - ends.guess(), middle) : 0);
    }
    if (speculate && worker == speculative_worker) {
        return {
            {0, ends.first_end},
            {ends.last_begin, ends.total},
            {ends.last_begin - speculative_share, ends.last_begin}};
    }
    const uint32_t others = speculate ? workers - 1 : workers;
    const uint32_t index = speculate && worker > speculative_worker ? worker - 1 : worker;
    const Range share = share_of(middle - speculative_share, index, others);
    return {{0, 0}, {0, 0}, {ends.first_end + share.begin, ends.first_end + share.end}};
}

// Columns of the last tile that hold cached tokens: 1 to 32.
inline uint32_t tokens_in_last_tile(uint32_t tokens) { return (tokens - 1) % tile_tokens + 1; }

// Whether tiles that end at `end` end in a partly filled tile.
inline bool ends_partly(uint32_t end, uint32_t tokens) {
    return tokens % tile_tokens != 0 && end == tokens / tile_tokens + 1;
}

// Whether that tile is in `part`.
inline bool needs_mask(const Part& part, uint32_t tokens) {
    const auto has = [&](const Range& range) { return range.size() > 0 && ends_partly(range.end, tokens); };
    return has(part.first) || has(part.last) || has(part.middle);
}

}  // namespace attention
