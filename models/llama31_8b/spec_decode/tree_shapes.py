# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which nodes a drafted tree has: fixed shapes known before drafting, and trees grown by the draft's
confidence."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch

from .draft_shape import DEFAULT_TREE_BUDGET, DraftShape
from .tree import TokenTree, TokenTreeError


@dataclass(frozen=True, eq=False)
class TreeShape:
    """A fixed shape. `tree` has its root as node 0 and its nodes in order of depth; `rank` [N] int64 says
    which of its parent's candidates a node is (0 = the most probable); `levels[d]` is the node range of depth
    d."""

    tree: TokenTree
    rank: torch.Tensor
    levels: tuple[range, ...]

    @cached_property
    def inner(self) -> tuple[int, ...]:
        """Nodes with children, the root left out: what a drafter passes through its model besides the root."""
        return tuple(sorted({*self.tree.parents.tolist()[1:]} - {0}))

    @cached_property
    def forest(self) -> TokenTree | None:
        """The inner nodes in their order, the root's children as roots; None without any."""
        number = {node: index for index, node in enumerate(self.inner)}
        parents = [number.get(int(self.tree.parents[node]), -1) for node in self.inner]
        return TokenTree.from_parents(parents) if parents else None


def _check_shape(depth: int, branching: int, budget: int, min_budget: int) -> None:
    if depth < 1 or branching < 1:
        raise TokenTreeError(f"a tree shape needs depth and branching of at least 1, got {depth} and {branching}")
    if budget < min_budget:
        raise TokenTreeError(f"a tree of depth {depth} needs a budget of at least {min_budget} nodes, got {budget}")


@lru_cache(maxsize=256)
def fixed_shape(depth: int, branching: int, budget: int = DEFAULT_TREE_BUDGET) -> TreeShape:
    """Return the tree of `depth` levels below the root in which nodes have up to `branching` children.

    When the full tree has more than `budget` nodes (root included), the chain of first candidates is kept to
    full depth, and then the nodes of smallest sum of (rank + 1) along their path: the most probable ones when
    each candidate is half as likely as the one before it. Raises TokenTreeError for a budget below depth + 1.
    """
    _check_shape(depth, branching, budget, min_budget=depth + 1)
    spine = [(0,) * d for d in range(1, depth + 1)]
    chosen: set[tuple[int, ...]] = {(), *spine}
    heap: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]
    while heap and len(chosen) < budget:
        cost, level, path = heapq.heappop(heap)
        chosen.add(path)
        if level < depth:
            for rank in range(branching):
                heapq.heappush(heap, (cost + rank + 1, level + 1, (*path, rank)))
    ordered = sorted(chosen, key=lambda path: (len(path), path))
    index = {path: node for node, path in enumerate(ordered)}
    tree = TokenTree.from_parents([index[path[:-1]] if path else -1 for path in ordered], budget)
    rank = torch.tensor([path[-1] if path else 0 for path in ordered])
    starts = [next(i for i, path in enumerate(ordered) if len(path) == d) for d in range(depth + 1)]
    levels = tuple(range(a, b) for a, b in zip(starts, [*starts[1:], len(ordered)]))
    return TreeShape(tree, rank, levels)


class ConfidenceTree:
    """Trees grown level by level where the draft is most confident, for a batch of users (EAGLE-2).

    Every level expands the `branching` most probable nodes of the level before it into their `branching` most
    probable children; probability is the product along the path. At the end the `budget` most probable nodes
    of all levels are kept, and a node's ancestors always are with it. The choice depends on the draft's
    distributions only, never on drawn tokens, so the children are deterministic candidates to the verifier
    (point masses).
    """

    def __init__(self, root_tokens: torch.Tensor, depth: int, branching: int, budget: int = DEFAULT_TREE_BUDGET):
        _check_shape(depth, branching, budget, min_budget=2)
        batch = root_tokens.shape[0]
        self.depth, self.branching, self.budget = depth, branching, budget
        self.tokens = root_tokens.reshape(batch, 1).clone()
        self.parents = torch.full((batch, 1), -1)
        self.scores = torch.zeros(batch, 1, dtype=torch.float64)
        #: [batch, F] nodes whose children come next.
        self.frontier = torch.zeros(batch, 1, dtype=torch.int64)

    def expand(self, log_probabilities: torch.Tensor) -> None:
        """Add the children of the frontier and move it on to the best of them.

        Shape: log_probabilities [batch, F, vocab], the draft's distribution after each frontier node.
        """
        batch, width, vocab = log_probabilities.shape
        children = min(self.branching, vocab)
        best, tokens = log_probabilities.double().topk(children, dim=-1)
        scores = (self.scores.gather(1, self.frontier).unsqueeze(-1) + best).reshape(batch, -1)
        first = self.tokens.shape[1]
        self.tokens = torch.cat([self.tokens, tokens.reshape(batch, -1)], dim=1)
        self.parents = torch.cat([self.parents, self.frontier.repeat_interleave(children, dim=1)], dim=1)
        self.scores = torch.cat([self.scores, scores], dim=1)
        order = torch.sort(scores, dim=1, descending=True, stable=True).indices[:, : self.branching]
        self.frontier = first + torch.sort(order, dim=1).values

    def finish(self) -> tuple[list[TokenTree], torch.Tensor, torch.Tensor]:
        """Return the kept trees: (trees, tokens [batch, N], kept [batch, N] node numbers during growth, increasing)."""
        batch, total = self.tokens.shape
        keep = min(self.budget, total)
        # Stable: on equal scores the earlier node wins, and an ancestor is earlier and never less probable.
        kept = torch.sort(self.scores, dim=1, descending=True, stable=True).indices[:, :keep].sort(dim=1).values
        renumber = torch.full((batch, total), -1).scatter(1, kept, torch.arange(keep).expand(batch, -1))
        old_parents = self.parents.gather(1, kept)
        parents = torch.where(old_parents < 0, old_parents, renumber.gather(1, old_parents.clamp(min=0)))
        trees = [TokenTree.from_parents(row) for row in parents.tolist()]
        return trees, self.tokens.gather(1, kept), kept


MOST_ROWS = 32  # of a draft model's pass on chips: one tile


def check_draft_passes(shape: DraftShape, users: int) -> int:
    """Return the nodes per user of a draft model's exact pass: the tokens that a round decides, or a tree's nodes with
    children. Raises ValueError for grown trees and for more than 32 rows."""
    if shape.grown:
        raise ValueError("a draft model on chips drafts trees of a fixed shape, none grown by confidence")
    nodes = shape.length + 1
    if shape.width > 1:
        # Towards the end of a text drafts are shorter, within as many nodes.
        lengths = range(1, shape.length + 1)
        nodes = max(nodes, *(len(fixed_shape(length, shape.width, shape.most_nodes).inner) for length in lengths))
    if users * nodes > MOST_ROWS:
        raise ValueError(
            f"{users} users and drafts of {shape.length} tokens with {shape.width} candidates per node need "
            f"{users * nodes} rows per pass, the maximum is {MOST_ROWS}"
        )
    return nodes
