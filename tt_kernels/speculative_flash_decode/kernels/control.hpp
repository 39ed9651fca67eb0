// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What this op's control page has besides attention_control.hpp, and what follows from it for a head.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "tt_kernels/common/kernels/attention_control.hpp"
#include "tt_kernels/common/kernels/chosen_tiles.hpp"
#include "tt_kernels/common/kernels/merge_tree.hpp"

namespace control {

constexpr uint32_t first_chosen = 16;  // words: tiles that were chosen for each head of the group, in turn
static_assert(words_end <= first_chosen);

// Whether only the guess is computed: it is the last result then.
inline bool guess_alone() { return !config::speculate && config::guess_alone(); }

// What the workers of a head read: the guess, and then the rest. `chosen` tiles count as some more of the first ones
// (chosen_tiles.hpp).
class Head {
public:
    Head(uint32_t tokens, uint32_t chosen) : split_(ends_of(tokens, chosen), config::workers()) {}

    attention::Part part(uint32_t worker) const {
        attention::Part part = split_.part(worker);
        if (guess_alone()) {
            part.middle.end = part.middle.begin;
        }
        return part;
    }

    // Workers from this one on have no tiles.
    uint32_t workers_end() const { return attention::max(split_.with_guess().end, with_last().end); }

    // The levels at which `worker` receives partial results: of the guess, before it goes on with the rest; and at last.
    uint32_t guess_sources(uint32_t worker) const { return sources(split_.with_guess(), worker); }
    uint32_t sources(uint32_t worker) const { return sources(with_last(), worker); }

    // Whether `worker` has something for its receiver: tiles of its own, or what it received.
    bool sends_guess(uint32_t worker) const { return worker < split_.with_guess().end; }
    bool sends(uint32_t worker) const {
        const attention::Range workers = with_last();
        return (worker >= workers.begin && worker < workers.end) || sources(workers, worker) != 0;
    }

private:
    static attention::Ends ends_of(uint32_t tokens, uint32_t chosen) {
        if (!config::speculate && !guess_alone()) {
            return attention::Ends(tokens);
        }
        attention::GuessRange guess = config::guess();
        guess.first += chosen;
        return {tokens, guess};
    }
    attention::Range with_last() const { return guess_alone() ? split_.with_guess() : split_.with_rest(); }

    static uint32_t sources(const attention::Range& workers, uint32_t worker) {
        return merge_tree::sources_among(worker, workers.begin, workers.end);
    }

    attention::EvenSplit split_;
};

#if !defined(COMPILE_FOR_TRISC)

inline uint32_t chosen_of(const volatile uint32_t* words, uint32_t round) {
    return config::with_chosen ? words[first_chosen + round] : 0;
}

// The bits of the group's head number `round`: twice so many words (chosen_tiles.hpp).
inline uint32_t words_of_chosen() { return chosen_tiles::words_of(config::cache_tiles()); }
inline volatile tt_l1_ptr uint32_t* chosen_words(uint32_t round) {
    return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_write_ptr(config::cb_chosen)) +
           round * 2 * words_of_chosen();
}

// The order in which the rows of its cache are numbered.
struct InPlace {
    uint32_t tile(uint32_t row) const { return row; }
};
inline auto order_of(
    [[maybe_unused]] uint32_t tokens, [[maybe_unused]] uint32_t chosen, [[maybe_unused]] uint32_t round) {
    if constexpr (config::with_chosen) {
        const attention::Ends ends(tokens, config::guess());
        return chosen_tiles::Order(
            chosen_words(round), words_of_chosen(), ends.first_end, ends.last_begin, chosen);
    } else {
        return InPlace{};
    }
}

#endif

}  // namespace control
