// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The order in which a worker's reader reads its share of a head (head_split.hpp) and receives partial results; compute
// takes them in the same order.

#pragma once

#include "attention_config.hpp"
#include "cache_rows.hpp"
#include "head_split.hpp"

namespace head_share {

// read_chunk(range): reads the next chunk of `range` by `in_turn` and takes it from the range's start. receive(sources):
// the partial results of these levels.
template <typename InTurn, typename ReadChunk, typename Receive>
inline void read(
    const attention::Share& share, InTurn& in_turn, const ReadChunk& read_chunk, const Receive& receive) {
    // Chunks of `range`, the first only or the others too; returns what is left. Not inlined, as a kernel's code must stay
    // small.
    const auto read = [&](attention::Range range, bool first_only = false) __attribute__((noinline)) {
        while (range.size() > 0) {
            read_chunk(range);
            if (first_only) {
                break;
            }
        }
        return range;
    };
    read(share.part.first);
    read(share.part.last);
    attention::Range rest = share.part.middle;
    if (config::speculate && config::workers() > 1) {
        in_turn.finish();
        rest = read(rest, true);  // keys, while the guess is merged
        receive(share.guess_sources);
    }
    read(rest);
    in_turn.finish();
    receive(share.sources);
}

}  // namespace head_share
