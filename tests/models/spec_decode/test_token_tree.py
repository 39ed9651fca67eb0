# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token trees: the interval mask against the dense ancestor mask, merging, padding, bad parent arrays,
fixed shapes, and trees grown by confidence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llama31_8b.spec_decode.tree import (
    ConfidenceTree,
    TokenTree,
    TokenTreeBatch,
    fixed_shape,
    interval_mask,
    merge_sequences,
)
from tests.support.attention_cases import path_to


def dense_ancestor_mask(parents: list[int]) -> torch.Tensor:
    """The reference: climbs from every node to its root."""
    mask = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for node in range(len(parents)):
        mask[node, path_to(parents, node)] = True
    return mask


@st.composite
def parent_arrays(draw, max_nodes=48):
    """Forests of any form: each node picks any earlier node or none; `reach` bends them to chains or
    stars."""
    n = draw(st.integers(1, max_nodes))
    reach = draw(st.sampled_from([1, 2, 5, max_nodes]))
    roots = draw(st.booleans())
    return [-1, *(draw(st.integers(-1 if roots else max(0, node - reach), node - 1)) for node in range(1, n))]


@settings(max_examples=200)
@given(parent_arrays())
def test_interval_mask_is_the_ancestor_mask(parents):
    tree = TokenTree.from_parents(parents)
    expected = dense_ancestor_mask(parents)
    assert torch.equal(interval_mask(tree.enter, tree.leave), expected)
    assert torch.equal(tree.depth.long(), expected.sum(1) - 1)
    assert sorted(tree.enter.tolist()) == list(range(len(parents)))
    assert bool((tree.leave - tree.enter + 1 == expected.sum(0)).all()), "leave must close the subtree"
    first = len(parents) // 3
    assert torch.equal(interval_mask(tree.enter, tree.leave, first, first + 5), expected[first : first + 5])


@pytest.mark.parametrize(
    ("parents", "words"),
    [
        ([], "at least one node"),
        ([0], r"parents\[0\] = 0"),
        ([-1, 2, 1], r"parents\[1\] = 2.*unordered or cyclic"),
        ([-1, -2], r"parents\[1\] = -2"),
    ],
)
def test_bad_parent_arrays_are_refused(parents, words):
    with pytest.raises(ValueError, match=words):
        TokenTree.from_parents(parents)


@given(st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=6))
def test_merge_shares_common_prefixes_and_loses_nothing(sequences):
    tree, tokens = merge_sequences(9, sequences)
    prefixes = {tuple(s[:n]) for s in sequences for n in range(len(s) + 1)} | {()}
    paths = [tuple(tokens[node] for node in tree.path(leaf)[1:]) for leaf in range(len(tree))]
    assert len(paths) == len(set(paths)) and set(paths) == prefixes


@settings(max_examples=200)
@given(st.lists(parent_arrays(max_nodes=12), min_size=1, max_size=4))
def test_padded_batches_change_no_users_mask(arrays):
    batch = TokenTreeBatch.stack([TokenTree.from_parents(a) for a in arrays])
    for user, parents in enumerate(arrays):
        n, width = len(parents), batch.width
        single = TokenTree(batch.parents[user], batch.enter[user], batch.leave[user], batch.depth[user])
        expected = torch.eye(width, dtype=torch.bool)
        expected[:n, :n] = dense_ancestor_mask(parents)
        assert torch.equal(interval_mask(single.enter, single.leave), expected)
        assert int(batch.counts[user]) == n
        for node in range(width):
            children, child = [], int(batch.first_child[user, node])
            while child >= 0:
                children.append(child)
                child = int(batch.next_sibling[user, child])
            assert children == [c for c in range(n) if parents[c] == node]


@settings(max_examples=200)
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
    inner = set(shape.tree.parents.tolist()) - {-1, 0}
    assert set(shape.inner) == inner
    if shape.forest is not None:
        assert shape.forest.depth.tolist() == [int(shape.tree.depth[node]) - 1 for node in shape.inner]
    for parent in (-1, *range(len(shape.tree))):
        ranks = shape.rank[shape.tree.parents == parent].tolist()
        assert ranks == list(range(len(ranks))) and len(ranks) <= branching


def test_fixed_shape_prefers_first_candidates():
    shape = fixed_shape(3, 2, budget=6)
    # Kept to full depth: the spine (3 nodes); then the cheapest others: (1) of cost 2, one of (0,1)/(1,0) of
    # cost 3.
    assert shape.tree.parents.tolist() == [-1, 0, 0, 1, 1, 3] and shape.rank.tolist() == [0, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("seed", range(5))
def test_grown_tree_holds_the_most_probable_paths(seed):
    """Of a draft whose next-token log-probabilities depend on the last token only: table [vocab, vocab]."""
    vocab, depth, branching, budget = 5, 3, 5, 12
    table = torch.log_softmax(3 * torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(seed)), -1)
    growing = ConfidenceTree(torch.tensor([0]), branching, budget)
    for _ in range(depth):
        growing.expand(table[growing.tokens.gather(1, growing.frontier)])
    (tree,), tokens, _ = growing.finish()
    paths = {tuple(int(tokens[0, n]) for n in tree.path(node)[1:]) for node in range(len(tree))}
    assert len(paths) == budget == len(tree)

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
    assert paths == {(), *best}
