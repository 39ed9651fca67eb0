// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The lossy verification by sigmoids, node by node. Accepting reads only the logits of the children: no reduction over
// the vocabulary. Whole rows are read only where a token is drawn.

#pragma once

#include <cstdint>

#include "walk.hpp"

class SigmoidWalk {
public:
    SigmoidWalk(Part& part, Shares& shares, const Tree& tree) :
        part_(part), shares_(shares), tree_(tree), mass_(part, shares) {}

    template <typename Targets, typename Drafts>
    Step visit(const Targets& targets, const Drafts& drafts, const row_reader::Place& place) {
        Step step;
        const bool leaf = tree_.is_leaf(place.node);
        if (!leaf) {
            step = try_children(targets, drafts, place);
        }
        if (step.child != nobody || step.status != verification::fine) {
            return step;
        }
        step.status = read_rows(part_, shares_, targets, drafts, place, !leaf);
        if (step.status != verification::fine) {
            return step;
        }
        if (!leaf) {
            part_.form = command::difference;
            mass_.sum_up();
        }
        if (leaf || mass_.sum == 0) {
            part_.form = command::softmax;
            mass_.sum_up();
        }
        step.bonus = mass_.draw(tree_.uniforms[0]);
        return step;
    }

private:
    Part& part_;
    Shares& shares_;
    const Tree& tree_;
    Mass mass_;

    static bool is_number(uint16_t logit) {
        return logit == row_reader::minus_infinity || (logit & 0x7F80) != 0x7F80;
    }

    template <typename Targets, typename Drafts>
    Step try_children(const Targets& targets, const Drafts& drafts, const row_reader::Place& place) {
        Step step;
        const uint32_t node = place.node;
        const uint32_t children = tree_.for_children(node, 0, [&](uint32_t child, uint32_t i) {
            part_.start_piece(targets, place, tree_.tokens[child], i, part_.target);
            part_.start_piece(drafts, place, tree_.tokens[child], i, part_.draft);
        });
        noc_async_read_barrier();
        lines::Words line = shares_.begin(lines::sums, lines::sum_words + 2 + 2 * children);
        tree_.for_children(node, 0, [&](uint32_t child, uint32_t i) {
            const uint32_t token = tree_.tokens[child];
            const uint16_t target = part_.in_piece(part_.target, token, i);
            const uint16_t draft = part_.in_piece(part_.draft, token, i);
            line[lines::numbers] += !is_number(target);
            line[lines::numbers + 1] += !is_number(draft);
            part_.gather(i, target, draft);
        });
        part_.stages = 0;
        part_.form = command::sigmoid;
        lines::Words weights = line + lines::numbers + 2;
        part_.weigh(command::target, children, weights);
        part_.weigh(command::draft, children, weights + children);
        lines::Words answer = shares_.exchange();
        if (answer[lines::numbers] != 0 || answer[lines::numbers + 1] != 0) {
            step.status = answer[lines::numbers] != 0 ? verification::bad_target : verification::bad_draft;
            return step;
        }
        weights = answer + lines::numbers + 2;
        tree_.for_children(node, 0, [&](uint32_t child, uint32_t i) {
            const wide::Product p = wide::multiply(static_cast<uint64_t>(weights[i]) << 32, 1);
            const wide::Product uq = wide::multiply(tree_.uniforms[child], weights[children + i]);
            if (step.child == nobody && !wide::less(p, uq)) {
                step.child = child;
            }
        });
        return step;
    }
};
