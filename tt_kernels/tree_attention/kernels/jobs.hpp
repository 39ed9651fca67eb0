// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Which core does what; every RISC-V of every core derives it from the shapes and the users' prefixes.
//
// The queries of a key/value head of a user are rows g * nodes + n for node n of its g-th query head, packed into tiles
// of 32 rows. A job is `query_tiles` of these tiles, or the rest; jobs of one head are consecutive.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "tt_kernels/common/kernels/chunk_split.hpp"
#include "tt_kernels/common/kernels/merge_tree.hpp"

namespace jobs {

constexpr uint32_t tile_tokens = attention::tile_tokens;

inline uint32_t tiles_of(uint32_t rows) { return (rows + 31) / 32; }

struct Job {
    uint32_t user;
    uint32_t kv_head;
    uint32_t first_row;
    uint32_t rows;
    bool first;  // of its head

    uint32_t tiles() const { return tiles_of(rows); }
    uint32_t rows_of(uint32_t tile) const { return attention::min(rows - tile * 32, 32); }
};

inline uint32_t count() { return config::users() * config::kv_heads() * config::passes(); }

inline Job job_of(uint32_t index) {
    const uint32_t head = index / config::passes();
    const uint32_t pass = index - head * config::passes();
    const uint32_t user = head / config::kv_heads();
    const uint32_t first_row = pass * config::query_tiles() * 32;
    const uint32_t left = config::group_heads() * config::nodes() - first_row;
    return {
        user, head - user * config::kv_heads(), first_row, attention::min(left, config::query_tiles() * 32),
        pass == 0};
}

// The worker of a group that has the guess, and with it perhaps more keys than the others. Its partial result should be
// merged late: the last one's is, but in a full merge tree, where it has all levels before it; the second's there waits
// in the reducer for those that pass several levels.
inline uint32_t speculative_worker() {
    if constexpr (!config::speculate) {
        return attention::nobody;
    }
    const uint32_t last = config::workers() - 1;
    return (config::workers() & last) == 0 ? attention::min(last, 1) : last;
}

// The cached tokens that a user's nodes attend to: `prefix` tokens that all see, then the nodes' own, cut off at the
// end of the cache.
struct Span {
    uint32_t prefix;
    uint32_t tokens;

    // The first key tile that holds tokens not all nodes see.
    uint32_t first_masked() const { return prefix / tile_tokens; }

    // The tiles of `range` before that one.
    uint32_t unmasked(const attention::Range& range) const {
        const uint32_t from = first_masked();
        return from <= range.begin ? 0 : attention::min(from - range.begin, range.size());
    }
    bool masks(const attention::Range& range) const { return unmasked(range) < range.size(); }
    bool masks(const attention::Part& part) const {
        return masks(part.first) || masks(part.last) || masks(part.middle);
    }

    // What the guess reads: what that of the tree's root reads, and all nodes.
    attention::GuessRange guess() const {
        if constexpr (!config::speculate) {
            return {0, 0, false};
        }
        attention::GuessRange guess = config::guess();
        guess.after = tokens - attention::min(prefix + 1, tokens);
        return guess;
    }
    bool bypassed() const { return guess().bypassed(tokens); }

    // The key tiles that `worker` reads. Without speculation only the last workers may have none. Not inlined, as a
    // kernel's code must stay small.
    __attribute__((noinline)) attention::Part part(uint32_t worker) const {
        return attention::part_of(tokens, guess(), worker, config::workers(), speculative_worker());
    }

    // The levels at which `worker` receives partial results (merge_tree.hpp).
    uint32_t sources(uint32_t worker) const {
        return merge_tree::sources_of(
            worker, config::workers(), [this](uint32_t other) { return part(other).tiles() > 0; });
    }
};

// own: the tokens up to the tree's root, as the control page has them.
inline Span span_of(uint32_t own) {
    const uint32_t prefix = own - 1;
    return {prefix, attention::min(prefix + config::nodes(), config::cache_tiles() * tile_tokens)};
}

// Calls visit(chunk) for the tiles of `range`: chunk_tiles at a time, the rest with the last of them if the buffers hold
// both.
template <typename Visit>
inline void for_each_chunk(const attention::Range& range, Visit visit) {
    for (uint32_t begin = range.begin; begin < range.end;) {
        const uint32_t left = range.end - begin;
        const uint32_t tiles = left <= config::key_tiles() ? left : config::chunk_tiles();
        visit(attention::Range{begin, begin + tiles});
        begin += tiles;
    }
}

// The same for the ranges of `part`: those of the guess, then the middle. One loop, as code for each range would not
// fit.
template <typename Visit>
inline void for_each_chunk(const attention::Part& part, Visit visit) {
    if constexpr (config::speculate) {
        const attention::Range* const ranges[] = {&part.first, &part.last, &part.middle};
        for (const attention::Range* range : ranges) {
            for_each_chunk(*range, visit);
        }
    } else {
        for_each_chunk(part.middle, visit);
    }
}

// Whether the speculative worker has the guess's keys only, and another one to merge it: it hands its partial results
// over first.
inline bool guess_is_last(const attention::Part& part, uint32_t worker) {
    return part.middle.size() == 0 && worker != attention::reducer;
}

}  // namespace jobs
