// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What each worker of a head has of its guess and of the rest, and from whom it receives partial results of either. The
// readers work it out (head_share.hpp).

#pragma once

#include <cstdint>

#include "chunk_split.hpp"
#include "merge_tree.hpp"

namespace attention {

// All of one worker.
struct Share {
    Part part;
    // The slots in which it receives partial results: of the guess, before it goes on with the rest; and at last.
    uint32_t guess_sources, sources;
    // Whether it has something for its receiver: tiles of its own, or what it received.
    uint32_t sends_guess, sends;
    uint32_t chosen;  // tiles of the head that were chosen (chosen_tiles.hpp)
};

class HeadSplit {
public:
    // guess_alone: the rest is not read.
    HeadSplit(const EvenSplit& split, bool guess_alone = false) : split_(split), guess_alone_(guess_alone) {}

    Share share(uint32_t worker, uint32_t chosen) const {
        Part part = split_.part(worker);
        if (guess_alone_) {
            part.middle.end = part.middle.begin;
        }
        const Range guessing = split_.with_guess(), last = with_last();
        const uint32_t from = sources(last, worker);
        const bool sends = (worker >= last.begin && worker < last.end) || from != 0;
        return {part, sources(guessing, worker), from, worker < guessing.end, sends, chosen};
    }

    // Workers from this one on have no tiles.
    uint32_t workers_end() const { return max(split_.with_guess().end, with_last().end); }

private:
    Range with_last() const { return guess_alone_ ? split_.with_guess() : split_.with_rest(); }

    static uint32_t sources(const Range& workers, uint32_t worker) {
        return merge_tree::sources_among(worker, workers.begin, workers.end);
    }

    EvenSplit split_;
    bool guess_alone_;
};

}  // namespace attention
