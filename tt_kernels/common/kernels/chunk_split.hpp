// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Which key tiles each worker of a head reads, and in which order (ALSpec paper, algorithm 3, lines 12-19).
// All units are tiles of 32 cached tokens. Every worker derives its part from the numbers of tokens and of chosen tiles, so
// nothing about the split is ever sent between cores.

#pragma once

#include <cstdint>

#include "merge_tree.hpp"

namespace attention {

constexpr uint32_t tile_tokens = 32;

// Tiles [begin, end).
struct Range {
    uint32_t begin;
    uint32_t end;

    uint32_t size() const { return end - begin; }
};

// Takes the next chunk from the start of `range`: `tiles`, or the rest if that is at most `most`.
inline Range next_chunk(Range& range, uint32_t tiles, uint32_t most) {
    const uint32_t begin = range.begin, left = range.size();
    range.begin += left <= most ? left : tiles;
    return {begin, range.begin};
}

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

// The tiles of the workers [first, first + index) of [first, first + count) that share `tiles` evenly. The larger shares go
// first to workers of even numbers, to which the others send their partial results (merge_tree.hpp). Of fewer tiles than
// workers the first have one each.
inline __attribute__((noinline)) uint32_t
shared_before(uint32_t tiles, uint32_t index, uint32_t count, uint32_t first) {
    const uint32_t share = tiles / count, larger = tiles - share * count, is_even = ~first & 1;
    const uint32_t even = share == 0 ? index : (index + is_even) / 2, all_even = (count + is_even) / 2;
    const uint32_t to_even = min(even, larger), to_odd = larger > all_even ? larger - all_even : 0;
    return index * share + to_even + min(index - even, to_odd);
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

// Which tiles the workers of a head read. The first ones share the guess's, as if the two ends were adjacent: 1, 4, 16
// and so on, until a share is few tiles, since their partial results are merged in levels of four (merge_tree.hpp). All
// share the rest, so that with the guess, its merges and its emission they are busy as long; who is busy longer anyway
// has none of it.
class EvenSplit {
public:
    // few_tiles: of a guess; one worker has read them sooner than more have read their shares and merged.
    EvenSplit(const Ends& ends, uint32_t workers, uint32_t few_tiles = 5) :
        first_end_(ends.first_end), guess_(ends.guess()), rest_(ends.rest()), workers_(workers) {
        if (guess_ == 0) {
            return;
        }
        for (dealt_ = 1; dealt_ < workers && guess_ > few_tiles * dealt_;) {
            dealt_ = min(dealt_ << merge_tree::bits, workers);
        }
        const uint32_t late = guess_before(1) + merging_before(1) + tiles_of_emission;
        const uint32_t busy = guess_ + merging_before(dealt_) + tiles_of_emission;
        if (rest_ + busy >= (late + 1) * workers) {
            busy_ = busy;
        } else {
            idle_ = rest_ <= late * (workers - dealt_) ? dealt_ : 1;
        }
    }

    // The workers with a part of the guess, and of the rest.
    Range with_guess() const { return {0, dealt_}; }
    Range with_rest() const { return {idle_, min(idle_ + rest_, workers_)}; }

    Part part(uint32_t worker) const {
        const Range guess{guess_before(worker), guess_before(worker + 1)};
        Part part{
            {min(guess.begin, first_end_), min(guess.end, first_end_)}, {0, 0}, {first_end_, first_end_}};
        if (guess.end > first_end_) {
            part.last = {rest_ + max(guess.begin, first_end_), rest_ + guess.end};
        }
        if (worker >= idle_) {
            part.middle = {rest_before(worker), rest_before(worker + 1)};
        }
        return part;
    }

private:
    // The tiles that a worker could read while it merges the partial results of a level; and emits the guess, the reducer.
    static constexpr uint32_t tiles_of_merge = 2, tiles_of_emission = 2;

    uint32_t guess_before(uint32_t worker) const {
        return worker < dealt_ ? shared_before(guess_, worker, dealt_, 0) : guess_;
    }

    // The same of all workers before this one that merge parts of the guess. At each level every so many workers do.
    uint32_t merging_before(uint32_t worker) const {
        uint32_t found = 0;
        for (uint32_t step = 1, shift = merge_tree::bits; step < dealt_; step <<= merge_tree::bits) {
            found += (min(worker, dealt_ - step) + (1u << shift) - 1 >> shift) * tiles_of_merge;
            shift += merge_tree::bits;
        }
        return found;
    }

    // All that the workers before this one read of the rest; where all have some of it, less what they are busy with.
    __attribute__((noinline)) uint32_t rest_before(uint32_t worker) const {
        uint32_t before = shared_before(rest_ + busy_, worker - idle_, workers_ - idle_, idle_);
        if (busy_ > 0 && worker > 0) {
            before -= guess_before(worker) + tiles_of_emission + merging_before(worker);
        }
        return first_end_ + before;
    }

    uint32_t first_end_, guess_, rest_, workers_;
    uint32_t dealt_ = 0;  // workers that share the guess
    uint32_t busy_ = 0;   // of all, in tiles, where that counts
    uint32_t idle_ = 0;   // the first workers, without a part of the rest
};

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
