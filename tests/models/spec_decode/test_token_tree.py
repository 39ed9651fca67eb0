# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token trees: the interval mask against the dense ancestor mask, merging, padding, and bad parent arrays."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch, merge_sequences


def dense_ancestor_mask(parents: list[int]) -> torch.Tensor:
    """The reference: climbs from every node to its root."""
    mask = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for query in range(len(parents)):
        node = query
        while node >= 0:
            mask[query, node] = True
            node = parents[node]
    return mask


@st.composite
def parent_arrays(draw, max_nodes=48):
    """Forests of any form: each node picks any earlier node or none; `reach` bends them to chains or
    stars."""
    n = draw(st.integers(1, max_nodes))
    reach = draw(st.sampled_from([1, 2, 5, max_nodes]))
    roots = draw(st.booleans())
    parents = [-1]
    for node in range(1, n):
        parents.append(draw(st.integers(-1 if roots else max(0, node - reach), node - 1)))
    return parents


@settings(max_examples=200, deadline=None)
@given(parent_arrays())
def test_interval_mask_is_the_ancestor_mask(parents):
    tree = TokenTree.from_parents(parents)
    expected = dense_ancestor_mask(parents)
    assert torch.equal(tree.mask(), expected)
    assert torch.equal(tree.depth.long(), expected.sum(1) - 1)
    assert sorted(tree.enter.tolist()) == list(range(len(parents)))
    assert bool((tree.leave - tree.enter + 1 == expected.sum(0)).all()), "leave must close the subtree"
    first = len(parents) // 3
    assert torch.equal(tree.mask(first, first + 5), expected[first : first + 5])


def test_deep_chain_needs_no_recursion():
    tree = TokenTree.chain(20_000)
    assert tree.max_depth == 19_999 and int(tree.leave[-1]) == 19_999


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


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=6))
def test_merge_shares_common_prefixes_and_loses_nothing(sequences):
    tree, tokens = merge_sequences(9, sequences)
    prefixes = {tuple(s[:n]) for s in sequences for n in range(len(s) + 1)} | {()}
    paths = [tuple(tokens[node] for node in tree.path(leaf)[1:]) for leaf in range(len(tree))]
    assert len(paths) == len(set(paths)) and set(paths) == prefixes


def test_merge_keeps_order_of_first_appearance():
    tree, tokens = merge_sequences(5, [[1, 2], [3], [1, 4]])
    assert tokens == [5, 1, 2, 3, 4] and tree.parents.tolist() == [-1, 0, 1, 0, 1]


@settings(max_examples=200, deadline=None)
@given(st.lists(parent_arrays(max_nodes=12), min_size=1, max_size=4))
def test_padded_batches_change_no_users_mask(arrays):
    batch = TokenTreeBatch.stack([TokenTree.from_parents(a) for a in arrays])
    for user, parents in enumerate(arrays):
        n, width = len(parents), batch.width
        single = TokenTree(batch.parents[user], batch.enter[user], batch.leave[user], batch.depth[user])
        expected = torch.eye(width, dtype=torch.bool)
        expected[:n, :n] = dense_ancestor_mask(parents)
        assert torch.equal(single.mask(), expected)
        assert int(batch.counts[user]) == n
        for node in range(width):
            children, child = [], int(batch.first_child[user, node])
            while child >= 0:
                children.append(child)
                child = int(batch.next_sibling[user, child])
            assert children == [c for c in range(n) if parents[c] == node]


def test_a_shared_shape_is_stored_once():
    tree = TokenTree.from_parents([-1, 0, 0, 1])
    shared, stacked = TokenTreeBatch.shared(tree, 5), TokenTreeBatch.stack([tree] * 5)
    for name in ("parents", "enter", "leave", "depth", "counts", "first_child", "next_sibling"):
        assert torch.equal(getattr(shared, name), getattr(stacked, name)), name
    assert shared.enter.untyped_storage().nbytes() == 4 * 4


def test_empty_batch_is_refused():
    with pytest.raises(ValueError, match="got none"):
        TokenTreeBatch.stack([])
