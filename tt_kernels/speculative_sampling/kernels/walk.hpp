// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What both ways of verifying share: the tree of a user, and what its parts find together.

#pragma once

#include <cstdint>

#include "lines.hpp"
#include "verification_result.hpp"
#include "part.hpp"
#include "shares.hpp"

// Where a walk stands after a node.
struct Step {
    uint32_t status = verification::fine;
    uint32_t child = nobody;  // the accepted one
    uint32_t bonus = 0;       // if there is none
};

struct Tree {
    uint32_t nodes;
    Words parents, tokens, uniforms;

    // The first child of `node` from `from` on; `nodes` if there is none.
    uint32_t next_child(uint32_t node, uint32_t from) const {
        while (from < nodes && parents[from] != node) {
            ++from;
        }
        return from;
    }
    bool is_leaf(uint32_t node) const { return next_child(node, 0) >= nodes; }

    // Calls visit(child, i) for the children from `from` on, i counting from 0; returns their number.
    template <typename Visit>
    uint32_t for_children(uint32_t node, uint32_t from, Visit visit) const {
        uint32_t count = 0;
        for (uint32_t i = next_child(node, from); i < nodes; i = next_child(node, i + 1)) {
            visit(i, count++);
        }
        return count;
    }
};

// The target's weights that a token is drawn from, including those of the other parts.
class Mass {
public:
    uint64_t sum = 0;  // of all parts

    Mass(Part& part, Shares& shares) : part_(part), shares_(shares) {}

    // After an exchange of this part's sum.
    void set(lines::Words answer) {
        sum = lines::wide(answer, lines::first_sum);
        before_ = Shares::before(answer);
    }

    // Sums and exchanges.
    void sum_up() {
        lines::Words line = shares_.begin(lines::sums, lines::sum_words);
        lines::set_wide(line, lines::first_sum, part_.sum_up(command::target));
        set(shares_.exchange());
    }

    // The token at which the sum of weights exceeds `uniform` times the whole. Needs a fresh sum.
    uint32_t draw(uint32_t uniform) {
        const uint64_t goal = wide::share(uniform, sum);
        const bool mine = !config::split || (goal >= before_ && goal - before_ < part_.sum());
        const uint32_t token = mine ? part_.find(goal - before_) : 0;
        lines::Words line = shares_.begin(lines::sums, lines::sum_words + 1);
        line[lines::numbers] = token;
        return shares_.exchange()[lines::numbers];
    }

private:
    Part& part_;
    Shares& shares_;
    uint64_t before_ = 0;
};

// Reads the rows of a node and finds the range of their logits, of all parts. Returns a status.
template <typename Targets, typename Drafts>
inline uint32_t read_rows(
    Part& part,
    Shares& shares,
    const Targets& targets,
    const Drafts& drafts,
    const row_reader::Place& place,
    bool with_draft) {
    part.start_read(targets, place, part.target);
    if (with_draft) {
        part.start_read(drafts, place, part.draft);
    }
    noc_async_read_barrier();
    part.find_range(part.target, command::target);
    lines::Words line = shares.begin(lines::range, lines::range_words);
    if (with_draft) {
        part.find_range(part.draft, command::draft);
    }
    Row* const rows[] = {&part.target, &part.draft};
    for (uint32_t i = 0; i < 2; ++i) {
        line[lines::content + 2 * i] = rows[i]->most;
        line[lines::content + 2 * i + 1] = rows[i]->least;
    }
    lines::Words answer = shares.exchange();
    for (uint32_t i = 0; i < 2; ++i) {
        rows[i]->most = answer[lines::content + 2 * i];
        rows[i]->least = answer[lines::content + 2 * i + 1];
        rows[i]->offset = bits_of(rows[i]->most) ^ sign;
    }
    part.stages = 0;
    part.form = command::softmax;
    if (!part.target.good()) {
        return verification::bad_target;
    }
    return with_draft && !part.draft.good() ? verification::bad_draft : verification::fine;
}
