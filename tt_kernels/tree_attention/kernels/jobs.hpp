// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Which core does what; every RISC-V of every core derives it from the shapes and the users' prefixes.
//
// The queries of a key/value head of a tree are rows g * nodes + n for node n of its g-th query head, packed into tiles
// of 32 rows. A job is `query_tiles` of these tiles, or the rest; jobs of one head are consecutive.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "tt_kernels/common/kernels/attention_control.hpp"
#include "tt_kernels/common/kernels/chunk_split.hpp"
#include "tt_kernels/common/kernels/head_split.hpp"
#include "tt_kernels/common/kernels/mass_columns.hpp"
#if !defined(COMPILE_FOR_TRISC)
#include "tt_kernels/common/kernels/masses.hpp"
#endif

namespace jobs {

constexpr uint32_t tile_tokens = attention::tile_tokens;

inline uint32_t tiles_of(uint32_t rows) { return (rows + 31) / 32; }

struct Job {
    uint32_t tree;  // the user, or of a prefill chunk
    uint32_t kv_head;
    uint32_t first_row;
    uint32_t rows;
    bool first;  // of its head

    uint32_t tiles() const { return tiles_of(rows); }
    uint32_t rows_of(uint32_t tile) const { return attention::min(rows - tile * 32, 32); }
};

inline uint32_t count() { return config::trees() * config::kv_heads() * config::passes(); }

inline Job job_of(uint32_t index) {
    const uint32_t head = index / config::passes();
    const uint32_t pass = index - head * config::passes();
    const uint32_t tree = head / config::kv_heads();
    const uint32_t first_row = pass * config::query_tiles() * 32;
    const uint32_t left = config::group_heads() * config::nodes() - first_row;
    return {
        tree, head - tree * config::kv_heads(), first_row, attention::min(left, config::query_tiles() * 32),
        pass == 0};
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

    // Of a prefill, the key tiles from the first one that not all queries of the tile from `row` on see, to the last that
    // some do.
    attention::Range seen(uint32_t row) const {
        const uint32_t first = prefix + row % config::nodes();
        return {(first + 1) / tile_tokens, attention::tiles_of(attention::min(first + tile_tokens, tokens))};
    }

    // What the guess reads: what that of the tree's root reads, and all nodes.
    attention::GuessRange guess() const {
        attention::GuessRange guess = config::guess();
        guess.after = tokens - attention::min(prefix + 1, tokens);
        return guess;
    }
    // The tiles that the root sees some of.
    uint32_t of_root() const { return attention::tiles_of(attention::min(prefix + 1, tokens)); }
    bool bypassed() const { return guess().bypassed(tokens); }

    attention::Ends ends() const {
        return config::speculate ? attention::Ends(tokens, guess()) : attention::Ends(tokens);
    }

    // What each worker reads: the guess, and then the rest. `chosen` tiles count as some more of the first ones.
    attention::HeadSplit split(uint32_t chosen) const {
        attention::Ends all = ends();
        if constexpr (config::with_chosen) {
            attention::GuessRange range = guess();
            range.first += chosen;
            all = {tokens, range};
        }
        constexpr uint32_t few_tiles = 10;  // for some tiles of queries, a merge takes longer than for one
        return {{all, config::workers(), few_tiles}};
    }
};

// Of the control page, the cached tokens of the user of a tree up to its first tree's root; and up to its own root. 0 for
// a user to skip.
inline uint32_t control_word(uint32_t tree) { return control::first_tokens + (config::prefills ? 0 : tree); }
inline uint32_t own_tokens(uint32_t control_word, uint32_t tree) {
    return config::prefills && control_word > 0 ? control_word + tree * config::nodes() : control_word;
}

// own: the tokens up to the tree's root, as the control page has them.
inline Span span_of(uint32_t own) {
    const uint32_t prefix = own - 1;
    return {prefix, attention::min(prefix + config::nodes(), config::cache_tiles() * tile_tokens)};
}

// Where the rows lie whose masses count (masses.hpp): of each query head the root's, in a job that has all of them. One
// query tile after another, without a division, which would take as long as the rest of a page of masses.
class Roots {
public:
    // Those of the next query tile.
    mass_columns::Rows next() {
        mass_columns::Rows rows{row_, 0, config::nodes()};
        for (const uint32_t heads = config::group_heads(); row_ < 32 && head_ < heads; ++head_) {
            ++rows.count;
            row_ += rows.step;
        }
        row_ -= 32;
        return rows;
    }

private:
    uint32_t head_ = 0, row_ = 0;  // of the next root; the row from the next tile's first one on
};

#if !defined(COMPILE_FOR_TRISC)

// For masses::Totals: those of the next query tile, whose state and row maxima lie where `page` says.
class RootTotals {
public:
    masses::Words operator()(uint32_t, masses::Words page, masses::Words to) {
        const uint32_t sums = page[0] + config::head_tiles * mass_columns::tile_bytes, maxima = page[1];
        const mass_columns::Rows rows = roots_.next();
        for (uint32_t i = 0; i < rows.count; ++i) {
            const uint32_t offset = mass_columns::row_offset(rows.at(i));
            *to++ = *masses::words_at(sums + offset);
            *to++ = *reinterpret_cast<masses::Halves>(maxima + offset / 2);
        }
        return to;
    }

private:
    Roots roots_;
};

#endif

// Takes the next chunk from the start of `range`: chunk_tiles, or the rest with the last of them if the buffers hold both.
inline attention::Range next_chunk(attention::Range& range) {
    return attention::next_chunk(range, config::chunk_tiles(), config::key_tiles());
}
template <typename Visit>
inline void for_each_chunk(attention::Range range, Visit visit) {
    while (range.size() > 0) {
        visit(next_chunk(range));
    }
}

}  // namespace jobs
