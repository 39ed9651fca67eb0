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

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import torch

from .draft_settings import DEFAULT_TREE_BUDGET, DraftShape


@dataclass(frozen=True, eq=False)
class TokenTree:
    """One tree or forest of N nodes, in an order where parents come before children.

    parents: [N] int32, -1 for a root. enter, leave: [N] int32 in [0, N), the first and last visiting time
    inside the node's subtree; enter is a permutation. depth: [N] int32, 0 for a root. Raises ValueError.
    """

    parents: torch.Tensor
    enter: torch.Tensor = field(repr=False)
    leave: torch.Tensor = field(repr=False)
    depth: torch.Tensor = field(repr=False)

    @classmethod
    def from_parents(cls, parents: Sequence[int]) -> TokenTree:
        """Check the array and walk it once, O(N), without recursion."""
        values, n = list(parents), len(parents)
        if not n:
            raise ValueError("a token tree needs at least one node, got an empty parent array")
        for node, parent in enumerate(values):
            if not -1 <= parent < node:
                raise ValueError(
                    f"parents[{node}] = {parent}: not -1 (a root) nor an earlier node: unordered or cyclic"
                )
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

    def path(self, node: int) -> list[int]:
        """Return the nodes from the root to `node`, both included."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]


#: A tree that drafts nothing.
ROOT = TokenTree.chain(1)

#: By user: tokens, of a text or a tree's nodes; positions or other numbers; trees.
UserTokens = Mapping[int, Sequence[int]]
UserNumbers = Mapping[int, int]
UserTrees = Mapping[int, TokenTree]


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
        """Stack one tree per user, padded to `width` nodes, by default to the largest. Raises ValueError."""
        largest = max(len(tree) for tree in trees)
        width = largest if width is None else width
        if len(trees) > 1 and largest == width and all(tree is trees[0] for tree in trees):
            return cls.shared(trees[0], len(trees))
        if largest > width:
            raise ValueError(f"a tree of {largest} nodes does not fit a width of {width}")
        columns = torch.arange(width, dtype=torch.int32)
        blank = {"parents": torch.full_like(columns, -1), "enter": columns, "leave": columns, "depth": columns * 0}
        parts = {
            name: torch.stack([torch.cat([getattr(tree, name), filler[len(tree) :]]) for tree in trees])
            for name, filler in blank.items()
        }
        return cls(**parts, counts=torch.tensor([len(tree) for tree in trees]))

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

    @cached_property
    def first_child(self) -> torch.Tensor:
        """[batch, N] int64, -1 for a leaf."""
        return _first(self.parents.unsqueeze(1) == torch.arange(self.width).unsqueeze(1))

    @cached_property
    def next_sibling(self) -> torch.Tensor:
        """[batch, N] int64, in node order; -1 for the last child of its parent."""
        parents = self.parents.unsqueeze(2)
        later = torch.ones(self.width, self.width, dtype=torch.bool).triu(1)
        return _first((self.parents.unsqueeze(1) == parents) & (parents >= 0) & later)


def _first(found: torch.Tensor) -> torch.Tensor:
    """Return the first column in which each row of bool [..., rows, columns] is True, -1 without one."""
    return torch.where(found.any(-1), found.int().argmax(-1), -1)


def merge_sequences(
    root_token: int, sequences: Sequence[Sequence[int]], budget: int = DEFAULT_TREE_BUDGET
) -> tuple[TokenTree, list[int]]:
    """Merge several drafted continuations of one root into one tree, common prefixes shared (SpecInfer's merge). What
    exceeds the budget of nodes is cut off the last sequences.

    Siblings are in order of first appearance. Returns the tree, root included as node 0, and its N tokens.
    """
    tokens, parents = [int(root_token)], [-1]
    child_of: dict[tuple[int, int], int] = {}
    for sequence in sequences:
        node = 0
        for token in sequence:
            key = (node, int(token))
            if key not in child_of:
                if len(tokens) == budget:
                    break
                child_of[key] = len(tokens)
                tokens.append(int(token))
                parents.append(node)
            node = child_of[key]
    return TokenTree.from_parents(parents), tokens


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


@lru_cache(maxsize=256)
def fixed_shape(depth: int, branching: int, budget: int = DEFAULT_TREE_BUDGET) -> TreeShape:
    """Return the tree of `depth` levels below the root in which nodes have up to `branching` children.

    When the full tree has more than `budget` nodes (root included), the chain of first candidates is kept to
    full depth, and then the nodes of smallest sum of (rank + 1) along their path: the most probable ones when
    each candidate is half as likely as the one before it. The budget is at least depth + 1.
    """
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
    tree = TokenTree.from_parents([index[path[:-1]] if path else -1 for path in ordered])
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

    def __init__(self, root_tokens: torch.Tensor, branching: int, budget: int):
        batch = root_tokens.shape[0]
        self.branching, self.budget = branching, budget
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
