# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Fixed tree shapes and trees grown by confidence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llama31_8b.spec_decode.tree import ConfidenceTree, TokenTreeBatch, fixed_shape


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 60))
def test_fixed_shape_invariants(depth, branching, spare):
    budget = depth + 1 + spare
    shape = fixed_shape(depth, branching, budget)
    full = sum(branching**d for d in range(depth + 1))
    assert len(shape.tree) == min(budget, full)
    assert shape.tree.max_depth == depth
    assert [list(level) for level in shape.levels] == [
        [n for n in range(len(shape.tree)) if shape.tree.depth[n] == d] for d in range(depth + 1)
    ]
    siblings: dict[int, list[int]] = {}
    for node, parent in enumerate(shape.tree.parents.tolist()):
        siblings.setdefault(parent, []).append(int(shape.rank[node]))
    for ranks in siblings.values():
        assert ranks == list(range(len(ranks))) and len(ranks) <= branching


def test_fixed_shape_prefers_first_candidates():
    shape = fixed_shape(3, 2, budget=6)
    # Kept to full depth: the spine (3 nodes); then the cheapest others: (1) of cost 2, one of (0,1)/(1,0) of
    # cost 3.
    assert shape.tree.parents.tolist() == [-1, 0, 0, 1, 1, 3] and shape.rank.tolist() == [0, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("depth", "branching", "budget", "words"),
    [(0, 2, 8, "got 0 and 2"), (2, 0, 8, "got 2 and 0"), (4, 2, 1, "budget of at least . nodes, got 1")],
)
def test_impossible_shapes_are_refused(depth, branching, budget, words):
    with pytest.raises(ValueError, match=words):
        fixed_shape(depth, branching, budget)
    with pytest.raises(ValueError, match=words):
        ConfidenceTree(torch.tensor([1]), depth, branching, budget)


def grow(table: torch.Tensor, root: int, depth: int, branching: int, budget: int):
    """A draft whose next-token log-probabilities depend on the last token only: table [vocab, vocab]."""
    tree = ConfidenceTree(torch.tensor([root]), depth, branching, budget)
    for _ in range(depth):
        tree.expand(table[tree.tokens.gather(1, tree.frontier)])
    trees, tokens, kept = tree.finish()
    return TokenTreeBatch.stack(trees), tokens, kept


@pytest.mark.parametrize("seed", range(5))
def test_grown_tree_holds_the_most_probable_paths(seed):
    vocab, depth, branching, budget = 5, 3, 5, 12
    table = torch.log_softmax(3 * torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(seed)), -1)
    trees, tokens, _ = grow(table, 0, depth, branching, budget)
    paths = {tuple(tokens[0, n] for n in _path(trees.parents[0].tolist(), node)): node for node in range(trees.width)}
    assert len(paths) == budget

    def score(path):
        return sum(float(table[a, b]) for a, b in zip((0, *path), path))

    # With branching = vocab the first level is complete and each level expands its 5 best, so every path
    # whose ancestors are all among the 5 best of their level is a candidate: brute force over exactly those.
    candidates, frontier = [], [()]
    for _ in range(depth):
        level = [(*path, t) for path in frontier for t in range(vocab)]
        candidates += level
        frontier = sorted(level, key=score, reverse=True)[:branching]
    best = sorted(candidates, key=score, reverse=True)[: budget - 1]
    assert {tuple(int(t) for t in p) for p in paths} == {(), *best}


def _path(parents, node):
    nodes = []
    while node > 0:
        nodes.append(node)
        node = parents[node]
    return nodes[::-1]


def test_every_user_grows_its_own_tree():
    generator = torch.Generator().manual_seed(3)
    tables = torch.log_softmax(4 * torch.randn(3, 6, 6, generator=generator), -1)
    together = ConfidenceTree(torch.tensor([0, 1, 2]), 3, 2, 8)
    for _ in range(3):
        frontier = together.tokens.gather(1, together.frontier)
        together.expand(torch.stack([tables[u][frontier[u]] for u in range(3)]))
    trees, tokens, kept = together.finish()
    for user in range(3):
        alone_trees, alone_tokens, alone_kept = grow(tables[user], user, 3, 2, 8)
        assert torch.equal(trees[user].parents, alone_trees.parents[0])
        assert torch.equal(tokens[user], alone_tokens[0]) and torch.equal(kept[user], alone_kept[0])
