// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// How this op splits a head; for readers.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "tt_kernels/common/kernels/attention_control.hpp"
#include "tt_kernels/common/kernels/head_split.hpp"
#include "tt_kernels/common/kernels/mass_columns.hpp"

namespace control {

// Whether only the guess is computed: it is the last result then.
inline bool guess_alone() { return !config::speculate && config::guess_alone(); }

// What the guess of a user with so many tokens reads, without chosen tiles.
inline attention::Ends ends_of(uint32_t tokens) { return {tokens, config::guess()}; }

// `chosen` tiles count as some more of the first ones (chosen_tiles.hpp).
inline attention::HeadSplit split_of(uint32_t tokens, uint32_t chosen) {
    const bool alone = guess_alone();
    if (!config::speculate && !alone) {
        return {{attention::Ends(tokens), config::workers()}};
    }
    attention::GuessRange guess = config::guess();
    guess.first += chosen;
    return {{attention::Ends(tokens, guess), config::workers()}, alone};
}

// Where the rows lie whose masses count (masses.hpp): a head's, in the only tile of queries.
struct HeadRows {
    mass_columns::Rows next() const { return {0, config::group_heads(), 1}; }
};

}  // namespace control
