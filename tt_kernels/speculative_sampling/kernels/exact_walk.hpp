// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Exact verification, node by node: reads the node's rows once, tries its children in order, and draws if none is
// accepted. All decisions are comparisons of whole numbers; see README.md for the arithmetic. On a split vocabulary
// all parts take the same decisions from the same numbers.

#pragma once

#include <cstdint>

#include "walk.hpp"

class ExactWalk {
public:
    ExactWalk(Part& part, Shares& shares, const Tree& tree) :
        part_(part), shares_(shares), tree_(tree), mass_(part, shares) {}

    template <typename Targets, typename Drafts>
    Step visit(const Targets& targets, const Drafts& drafts, const row_reader::Place& place) {
        Step step;
        const bool leaf = tree_.is_leaf(place.node);
        step.status = read_rows(part_, shares_, targets, drafts, place, config::has_draft && !leaf);
        if (step.status != verification::fine) {
            return step;
        }
        weigh_rows(place.node);
        step.child = try_children(place.node);
        if (step.child == nobody) {
            if (stale_) {
                mass_.sum_up();
            }
            step.bonus = mass_.draw(tree_.uniforms[0]);
        }
        return step;
    }

private:
    Part& part_;
    Shares& shares_;
    const Tree& tree_;
    Mass mass_;
    uint64_t draft_sum_ = 0;
    bool stale_ = false;     // whether the part's sums are those of other weights
    uint32_t drawable_ = 0;  // a bit for each child: whether the draft could draw it at all
    uint32_t removed_ = 0;   // a bit for each child: whether its token has been taken out
    // Weights of the children, by node.
    uint32_t p_[config::max_nodes], q_[config::max_nodes];

    // Puts the logits of the children, from child `from` on, where the calculator finds them.
    uint32_t gather(uint32_t node, uint32_t from) {
        return tree_.for_children(node, from, [&](uint32_t child, uint32_t i) {
            const uint32_t token = tree_.tokens[child];
            part_.gather(i, part_.logit(part_.target, token), part_.logit(part_.draft, token));
        });
    }

    // Sums of both rows and weights of all children, of all parts.
    void weigh_rows(uint32_t node) {
        const uint32_t children = gather(node, 0);
        const bool with_draft = config::has_draft && children > 0;
        constexpr uint32_t rows = config::has_draft ? 2 : 1;
        lines::Words line = shares_.begin(lines::sums, lines::sum_words + 1 + rows * children);
        lines::Words weights = line + lines::numbers + 1;
        if (with_draft) {
            lines::set_wide(line, lines::second_sum, part_.sum_up(command::draft));
            part_.weigh(command::draft, children, weights + children);
            uint32_t drawable = 0;
            tree_.for_children(node, 0, [&](uint32_t child, uint32_t) {
                const uint16_t logit = part_.logit(part_.draft, tree_.tokens[child]);
                drawable |= (logit != row_reader::minus_infinity ? 1u : 0u) << child;
            });
            line[lines::numbers] = drawable;
        }
        if (children > 0) {
            part_.weigh(command::target, children, weights);
        }
        lines::set_wide(line, lines::first_sum, part_.sum_up(command::target));
        lines::Words answer = shares_.exchange();
        mass_.set(answer);
        draft_sum_ = lines::wide(answer, lines::second_sum);
        drawable_ = answer[lines::numbers];
        removed_ = 0;
        stale_ = false;
        weights = answer + lines::numbers + 1;
        tree_.for_children(node, 0, [&](uint32_t child, uint32_t i) {
            p_[child] = weights[i];
            q_[child] = with_draft ? weights[children + i] : 0;
        });
    }

    // Whether an earlier sibling among the bits of `which` has the child's token.
    bool tried_before(uint32_t child, uint32_t which) const {
        for (uint32_t i = tree_.next_child(tree_.parents[child], 0); i < child;
             i = tree_.next_child(tree_.parents[child], i + 1)) {
            if ((which >> i & 1) != 0 && tree_.tokens[i] == tree_.tokens[child]) {
                return true;
            }
        }
        return false;
    }

    // Returns the accepted child of `node`, or nobody; then mass_ is what to draw from.
    uint32_t try_children(uint32_t node) {
        for (uint32_t child = tree_.next_child(node, 0); child < tree_.nodes;
             child = tree_.next_child(node, child + 1)) {
            const uint32_t uniform = tree_.uniforms[child];
            if constexpr (config::has_draft) {
                if ((drawable_ >> child & 1) == 0 || tried_before(child, 0xFFFFFFFF) || draft_sum_ == 0) {
                    continue;
                }
                if (wide::less(
                        wide::scaled_draft(uniform, q_[child], mass_.sum),
                        wide::scaled_target(p_[child], draft_sum_))) {
                    return child;
                }
                reject(node, child);
                draft_sum_ -= q_[child];
            } else {
                const uint32_t weight = tried_before(child, removed_) ? 0 : p_[child];
                const wide::Product goal = wide::multiply(uniform, mass_.sum);
                if (wide::less(goal, wide::multiply(static_cast<uint64_t>(weight) << 32, 1))) {
                    return child;
                }
                if (weight != 0 && mass_.sum != weight) {
                    mass_.sum -= weight;
                    part_.set_logit(part_.target, tree_.tokens[child], row_reader::minus_infinity);
                    removed_ |= 1u << child;
                    stale_ = true;
                }
            }
        }
        return nobody;
    }

    // Forms the residual after a rejection, and the weights in it of the later children; if nothing remains, the
    // weights stay as they were.
    void reject(uint32_t node, uint32_t child) {
        const uint32_t token = tree_.tokens[child];
        const uint16_t logit = part_.logit(part_.target, token);
        part_.scales[2 * part_.stages] = wide::reciprocal(mass_.sum);
        part_.scales[2 * part_.stages + 1] = wide::reciprocal(draft_sum_);
        ++part_.stages;
        part_.set_logit(part_.target, token, row_reader::minus_infinity);
        const uint32_t later = gather(node, child + 1);
        lines::Words line = shares_.begin(lines::sums, lines::sum_words + later);
        if (later > 0) {
            part_.weigh(command::target, later, line + lines::numbers);
        }
        lines::set_wide(line, lines::first_sum, part_.sum_up(command::target));
        lines::Words answer = shares_.exchange();
        stale_ = lines::wide(answer, lines::first_sum) == 0;
        if (stale_) {
            --part_.stages;
            part_.set_logit(part_.target, token, logit);
            return;
        }
        mass_.set(answer);
        tree_.for_children(
            node, child + 1, [&](uint32_t other, uint32_t i) { p_[other] = answer[lines::numbers + i]; });
    }
};
