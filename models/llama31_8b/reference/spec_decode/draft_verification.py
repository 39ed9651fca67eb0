# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Verification of drafted chains and trees: exact, greedy, and the lossy sigmoid approximation.

All verifiers walk from the root (node 0, already decided): the children of the current node are tried in node
order, the first accepted one becomes the current node, and when none is accepted, or a leaf is reached, one
more token is drawn: the bonus token. So every call yields between 1 and depth + 1 new tokens per user.

Exactness (SpecInfer section 4.3; Leviathan et al. 2023 for one child). Let p be what remains of the target's
distribution after the current node, and q the distribution child x was drawn from, given the siblings before
it. x is accepted with probability min(1, p(x) / q(x)); on rejection p becomes norm(max(0, p - q)). Whatever q
is, the token that leaves the node then has the target's distribution, provided q is the true distribution of x:
- children drawn one by one without replacement (or independent draws with duplicates dropped, as in a tree
  merged from several sequences): q loses each sibling tried and is renormalised;
- children picked deterministically (top-k branching, n-gram look-up): q is a point mass, so x is accepted
  with probability p(x), and on rejection p loses x and is renormalised. Pass `draft_probabilities=None`.
At temperature 0 p is one-hot and every rule comes down to comparing with the arg-max.

Randomness comes in as uniforms, one column per node, so that a step draws a fixed number of values from each user's own
generator (`sampling.draw_uniforms`). Column 0, the root's, decides the bonus token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...generation.sampling import SamplingParams, SigmoidApproximation, filter_logits, inverse_cdf, warp_logits
from ...spec_decode.tree import TokenTreeBatch


@dataclass(frozen=True, eq=False)
class DraftVerification:
    """The result of one verification.

    path: [batch, D] int64, accepted nodes in order without the root, padded with -1; lengths: [batch] int64,
    their number; bonus: [batch] int64, the token after the last accepted node.
    """

    path: torch.Tensor
    lengths: torch.Tensor
    bonus: torch.Tensor

    def nodes(self, user: int) -> list[int]:
        """Return the accepted nodes of one user in order, without the root."""
        return self.path[user, : int(self.lengths[user])].tolist()


class _Walk:
    """State of the walk of all users at once: current node, next child to try, accepted path."""

    def __init__(self, trees: TokenTreeBatch):
        self.trees = trees
        self.current = torch.zeros(trees.batch, dtype=torch.int64)
        self.child = trees.first_child[:, 0].clone()
        self.path = torch.full((trees.batch, max(1, int(trees.depth.max()))), -1)
        self.lengths = torch.zeros(trees.batch, dtype=torch.int64)

    def pending(self) -> torch.Tensor:
        """Return the users that still have a child to try: [n] indices."""
        return (self.child >= 0).nonzero().flatten()

    def settle(self, users: torch.Tensor, accepted: torch.Tensor) -> None:
        """Move users whose child was accepted down to it, and the others on to the next sibling."""
        down, on = users[accepted], users[~accepted]
        self.path[down, self.lengths[down]] = self.child[down]
        self.lengths[down] += 1
        self.current[down] = self.child[down]
        self.child[down] = self.trees.first_child[down, self.current[down]]
        self.child[on] = self.trees.next_sibling[on, self.child[on]]


def _normalise(weights: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """Scale rows to sum 1; rows without mass (p = q up to rounding) become `otherwise`."""
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights / total.clamp(min=torch.finfo(weights.dtype).tiny), otherwise)


def verify_exact(
    trees: TokenTreeBatch,
    tokens: torch.Tensor,
    target_probabilities: torch.Tensor,
    draft_probabilities: torch.Tensor | None,
    uniforms: torch.Tensor,
) -> DraftVerification:
    """Accept drafted tokens so that the output has exactly the target's distribution (see the module's docstring).

    Shape: tokens [batch, N] int64; target_probabilities [batch, N, vocab], after the warpers, row i the
    target's distribution after node i; draft_probabilities likewise, row i what the children of node i were
    drawn from, or None for point masses; uniforms [batch, N] float64 in [0, 1).
    """
    walk = _Walk(trees)
    p = target_probabilities[:, 0].double()
    q = None if draft_probabilities is None else draft_probabilities[:, 0].double()
    while len(users := walk.pending()):
        nodes = walk.child[users]
        drafted = tokens[users, nodes]
        p_token = p[users, drafted]
        q_token = torch.ones_like(p_token) if q is None else q[users, drafted]
        # A token the draft could not have drawn (a sibling beyond the draft's support) is skipped.
        possible = q_token > 0
        accepted = possible & (uniforms[users, nodes] * q_token < p_token)
        walk.settle(users, accepted)
        down = users[accepted]
        p[down] = target_probabilities[down, walk.current[down]].double()
        if q is not None and draft_probabilities is not None:
            q[down] = draft_probabilities[down, walk.current[down]].double()
        rejected = possible & ~accepted
        on, tried = users[rejected], drafted[rejected]
        if not len(on):
            continue
        before = p[on]
        if q is None:
            after = before.clone()
            after[torch.arange(len(on)), tried] = 0.0
        else:
            after = (before - q[on]).clamp(min=0.0)
            q[on, tried] = 0.0
            q[on] = _normalise(q[on], q[on])
        p[on] = _normalise(after, before)
    return DraftVerification(walk.path, walk.lengths, inverse_cdf(p, uniforms[:, 0]))


def verify_greedy(trees: TokenTreeBatch, tokens: torch.Tensor, target_argmax: torch.Tensor) -> DraftVerification:
    """Do what `verify_exact` does at temperature 0, from arg-max ids alone.

    Shape: tokens, target_argmax [batch, N] int64; target_argmax[:, i] is the target's choice after node i.
    """
    walk = _Walk(trees)
    while len(users := walk.pending()):
        wanted = target_argmax[users, walk.current[users]]
        walk.settle(users, tokens[users, walk.child[users]] == wanted)
    return DraftVerification(walk.path, walk.lengths, target_argmax.gather(1, walk.current.unsqueeze(1)).squeeze(1))


def verify_sigmoid(
    trees: TokenTreeBatch,
    tokens: torch.Tensor,
    target_logits: torch.Tensor,
    draft_logits: torch.Tensor,
    uniforms: torch.Tensor,
    params: SamplingParams,
    approximation: SigmoidApproximation = SigmoidApproximation(),
) -> DraftVerification:
    """Verify lossily by `approximation`; see there for what it does and does not promise.

    Shape: tokens [batch, N] int64; target_logits, draft_logits [batch, N, vocab], raw; uniforms [batch, N].
    The warpers of `params`, of a temperature above 0, are applied to both as logits (a token they leave out has
    p^ = 0).
    """
    walk = _Walk(trees)
    p_hat = approximation(filter_logits(target_logits, params))
    q_hat = approximation(filter_logits(draft_logits, params))
    while len(users := walk.pending()):
        nodes, parents = walk.child[users], walk.current[users]
        drafted = tokens[users, nodes]
        accepted = uniforms[users, nodes] * q_hat[users, parents, drafted] <= p_hat[users, parents, drafted]
        walk.settle(users, accepted)
    everyone = torch.arange(trees.batch)
    weights = (p_hat[everyone, walk.current] - q_hat[everyone, walk.current]).clamp(min=0.0)
    exact = warp_logits(target_logits[everyone, walk.current], params).double()
    at_leaf = trees.first_child[everyone, walk.current] < 0
    use_exact = at_leaf | (weights.sum(-1) <= 0)
    bonus = inverse_cdf(torch.where(use_exact.unsqueeze(-1), exact, weights), uniforms[:, 0])
    return DraftVerification(walk.path, walk.lengths, bonus)
