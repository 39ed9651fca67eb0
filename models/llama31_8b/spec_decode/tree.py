# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token trees and their causal mask as two integers per node (FlashSpecInfer section 5.1).

A tree is a parent array. One depth-first walk gives every node an interval [enter, leave] of visiting times,
and node i is an ancestor of node j, or j itself, exactly when enter[i] <= enter[j] and leave[i] >= leave[j].
Attention needs nothing else, so N nodes cost 2N integers where a dense mask costs N * N bits. Depth is kept
as well: it is not part of the mask but gives a node its position (RoPE).

Node 0 of a tree that is verified is the root: the last token already chosen, whose KV entry is not in the
cache yet. Its children are the candidates for the next token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch


class TokenTreeError(ValueError):
    """A parent array that is not a tree, or a tree over its budget; the message names the offending values."""


def _checked_parents(parents: Sequence[int] | torch.Tensor, budget: int | None) -> list[int]:
    if isinstance(parents, torch.Tensor):
        if parents.ndim != 1 or parents.is_floating_point() or parents.dtype == torch.bool:
            raise TokenTreeError(
                f"parents must be a vector of integers, got {parents.dtype} of shape {list(parents.shape)}"
            )
        parents = parents.tolist()
    values = list(parents)
    if not values:
        raise TokenTreeError("a token tree needs at least one node, got an empty parent array")
    if budget is not None and len(values) > budget:
        raise TokenTreeError(f"the tree has {len(values)} nodes, over its budget of {budget}")
    for node, parent in enumerate(values):
        if isinstance(parent, bool) or not isinstance(parent, int):
            raise TokenTreeError(f"parents[{node}] = {parent!r} is not an integer")
        if parent < -1:
            raise TokenTreeError(f"parents[{node}] = {parent}: must be -1 (a root) or an earlier node")
        if parent >= node:
            raise TokenTreeError(
                f"parents[{node}] = {parent}: a parent must come before its child, so this array is unordered or cyclic"
            )
    return values


@dataclass(frozen=True, eq=False)
class TokenTree:
    """One tree or forest of N nodes, in an order where parents come before children.

    parents: [N] int32, -1 for a root. enter, leave: [N] int32 in [0, N), the first and last visiting time
    inside the node's subtree; enter is a permutation. depth: [N] int32, 0 for a root. Raises TokenTreeError.
    """

    parents: torch.Tensor
    enter: torch.Tensor = field(repr=False)
    leave: torch.Tensor = field(repr=False)
    depth: torch.Tensor = field(repr=False)

    @classmethod
    def from_parents(cls, parents: Sequence[int] | torch.Tensor, budget: int | None = None) -> TokenTree:
        """Check the array and walk it once, O(N), without recursion."""
        values = _checked_parents(parents, budget)
        n = len(values)
        subtree = [1] * n
        for node in range(n - 1, 0, -1):
            if values[node] >= 0:
                subtree[values[node]] += subtree[node]
        enter, depth = [0] * n, [0] * n
        # clock[node]: visiting time of the next child of node; a forest's roots follow one another.
        clock, root_clock = [0] * n, 0
        for node, parent in enumerate(values):
            if parent < 0:
                enter[node] = root_clock
                root_clock += subtree[node]
            else:
                enter[node] = clock[parent]
                clock[parent] += subtree[node]
                depth[node] = depth[parent] + 1
            clock[node] = enter[node] + 1
        leave = [e + s - 1 for e, s in zip(enter, subtree)]
        return cls(*(torch.tensor(v, dtype=torch.int32) for v in (values, enter, leave, depth)))

    @classmethod
    def chain(cls, length: int) -> TokenTree:
        """Return `length` nodes, each the parent of the next: plain causal order."""
        return cls.from_parents(range(-1, length - 1))

    def __len__(self) -> int:
        return self.parents.shape[0]

    @property
    def max_depth(self) -> int:
        return int(self.depth.max())

    def mask(self, first: int = 0, last: int | None = None) -> torch.Tensor:
        """Return rows [first, last) of the mask: [rows, N] bool, True where the query (row) sees the node (column).

        Built from the intervals; ask for one block of queries at a time.
        """
        return interval_mask(self.enter, self.leave, first, last)

    def path(self, node: int) -> list[int]:
        """Return the nodes from the root to `node`, both included."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]


#: A tree that drafts nothing.
ROOT = TokenTree.chain(1)


def interval_mask(enter: torch.Tensor, leave: torch.Tensor, first: int = 0, last: int | None = None) -> torch.Tensor:
    """Build rows [first, last) of the mask: enter, leave [..., N] -> bool [..., last - first, N]; row i sees column j
    iff j is i or its ancestor."""
    rows = slice(first, last)
    return (enter.unsqueeze(-2) <= enter[..., rows].unsqueeze(-1)) & (
        leave.unsqueeze(-2) >= leave[..., rows].unsqueeze(-1)
    )


@dataclass(frozen=True, eq=False)
class TokenTreeBatch:
    """Trees of a batch of users, padded to one width N; what the model's forward and the verifiers take.

    parents, enter, leave, depth: [batch, N] int32 (one row expanded over the batch when all users share a
    shape); counts: [batch] int64, real nodes per user. Padding nodes are roots with an interval of their own:
    nobody sees them and they see nobody, so they change nothing and no verifier reaches them.
    """

    parents: torch.Tensor
    enter: torch.Tensor
    leave: torch.Tensor
    depth: torch.Tensor
    counts: torch.Tensor

    @classmethod
    def stack(cls, trees: Sequence[TokenTree], width: int | None = None) -> TokenTreeBatch:
        """Stack one tree per user, padded to `width` nodes, by default to the largest. Raises TokenTreeError."""
        if not trees:
            raise TokenTreeError("a batch of trees needs at least one tree, got none")
        largest = max(len(tree) for tree in trees)
        width = largest if width is None else width
        if len(trees) > 1 and largest == width and all(tree is trees[0] for tree in trees):
            return cls.shared(trees[0], len(trees))
        if largest > width:
            raise TokenTreeError(f"a tree of {largest} nodes does not fit a width of {width}")
        columns = torch.arange(width, dtype=torch.int32)

        def padded(name: str, filler: torch.Tensor) -> torch.Tensor:
            return torch.stack([torch.cat([getattr(t, name), filler[len(t) :]]) for t in trees])

        return cls(
            parents=padded("parents", torch.full_like(columns, -1)),
            enter=padded("enter", columns),
            leave=padded("leave", columns),
            depth=padded("depth", torch.zeros_like(columns)),
            counts=torch.tensor([len(tree) for tree in trees]),
        )

    @classmethod
    def shared(cls, tree: TokenTree, batch: int) -> TokenTreeBatch:
        """Give all users the same shape, stored once."""
        parts = {name: getattr(tree, name).expand(batch, -1) for name in ("parents", "enter", "leave", "depth")}
        return cls(**parts, counts=torch.full((batch,), len(tree)))

    @property
    def batch(self) -> int:
        return self.parents.shape[0]

    @property
    def width(self) -> int:
        return self.parents.shape[1]

    @property
    def max_depth(self) -> int:
        return int(self.depth.max())

    @cached_property
    def _sibling_lists(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self.parents.stride(0) == 0:
            shapes, which = self.parents[:1], None
        else:
            shapes, which = torch.unique(self.parents, dim=0, return_inverse=True)
        first, following = [], []
        for parents in shapes.tolist():
            first_child, next_sibling, youngest = ([-1] * len(parents) for _ in range(3))
            for node, parent in enumerate(parents):
                if parent < 0:
                    continue
                if youngest[parent] < 0:
                    first_child[parent] = node
                else:
                    next_sibling[youngest[parent]] = node
                youngest[parent] = node
            first.append(first_child)
            following.append(next_sibling)
        lists = torch.tensor(first), torch.tensor(following)
        return tuple(of.expand(self.batch, -1) if which is None else of[which] for of in lists)

    @property
    def first_child(self) -> torch.Tensor:
        """[batch, N] int64, -1 for a leaf."""
        return self._sibling_lists[0]

    @property
    def next_sibling(self) -> torch.Tensor:
        """[batch, N] int64, in node order; -1 for the last child of its parent."""
        return self._sibling_lists[1]


def merge_sequences(
    root_token: int, sequences: Sequence[Sequence[int]], budget: int | None = None
) -> tuple[TokenTree, list[int]]:
    """Merge several drafted continuations of one root into one tree, common prefixes shared (SpecInfer's merge).

    Siblings are in order of first appearance. Returns the tree, root included as node 0, and its N tokens.
    Raises TokenTreeError when the merged tree has more than `budget` nodes.
    """
    tokens, parents = [int(root_token)], [-1]
    child_of: dict[tuple[int, int], int] = {}
    for sequence in sequences:
        node = 0
        for token in sequence:
            key = (node, int(token))
            if key not in child_of:
                child_of[key] = len(tokens)
                tokens.append(int(token))
                parents.append(node)
            node = child_of[key]
    return TokenTree.from_parents(parents, budget), tokens
