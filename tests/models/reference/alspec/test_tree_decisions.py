# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decisions of tree steps: one per user and layer, against a dense computation in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loguru import logger

from models.llama31_8b.reference.alspec.policies import ALSpecAttention, ExactAttention, SinkAttention
from models.llama31_8b.reference.model.attention import decode_attention
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import DecodeStep, GuessRange
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from tests.support.attention_cases import dense_attention_of, guess_positions, path_to, random_tokens, tiny_config

HEADS, KV_HEADS, DIM = 4, 2, 8
RANGE = GuessRange.both_ends(16, 8)
ONE_AFTER_ANOTHER = st.integers(0, 10**6)


@st.composite
def parent_arrays(draw, most: int = 12) -> list[int]:
    """One tree: node 0 is the root."""
    count = draw(st.integers(1, most))
    return [-1, *(draw(st.integers(0, node - 1)) for node in range(1, count))]


def layer_of(trees: TokenTreeBatch, lengths: list[int], seed: int) -> tuple[torch.Tensor, ...]:
    """Random query [users, T, h, d], scaled, and keys, values [users, kv, slots, d] of one layer."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(trees.batch, trees.width, HEADS, DIM)] + [(trees.batch, KV_HEADS, max(lengths) + trees.width, DIM)] * 2
    query, keys, values = (torch.randn(shape, generator=generator) for shape in shapes)
    return query * 2 / math.sqrt(DIM), keys, values


def dense_outputs(tensors, parents: list[int], length: int, user: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Guess and exact outputs [nodes, h * d] of one user in float64."""
    query, keys, values = tensors
    cached = [p for p in guess_positions(length + 1, RANGE.first, RANGE.alignment) if p < length]
    outs = []
    for prefix in (cached, range(length)):
        slots = [[*prefix, *(length + ancestor for ancestor in path_to(parents, n))] for n in range(len(parents))]
        outs.append(
            torch.stack([dense_attention_of(query[user, n], keys[user], values[user], s) for n, s in enumerate(slots)])
        )
    return outs[0], outs[1]


def ratio(guess: torch.Tensor, exact: torch.Tensor) -> float:
    return ((guess - exact).norm() / exact.norm()).item()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(parent_arrays(), st.integers(20, 90)), min_size=1, max_size=3),
    st.sampled_from([0.3, 0.5, 0.7]),
    ONE_AFTER_ANOTHER,
)
def test_a_users_nodes_are_decided_together(users, threshold: float, seed: int) -> None:
    """Trees of users differ and are padded to the widest; padding decides nothing."""
    trees = TokenTreeBatch.stack([TokenTree.from_parents(parents) for parents, _ in users])
    lengths = [length for _, length in users]
    tensors = layer_of(trees, lengths, seed)
    policy = ALSpecAttention(threshold, RANGE)
    step = DecodeStep(lengths, range(len(users)), trees.width, trees, RANGE)
    policy.begin_step(step, 1)
    out = decode_attention(policy, 0, *tensors, step).double()
    record = policy.statistics.steps[-1]
    for user, (parents, length) in enumerate(users):
        guess, exact = dense_outputs(tensors, parents, length, user)
        found = ratio(guess, exact)
        verified = length + 1 >= 2 * 16
        logger.info("{} nodes, ratio {:.4f}, threshold {}", len(parents), found, threshold)
        if abs(found / threshold - 1) < 1e-5:
            continue
        accepted = verified and found < threshold
        assert record.verified[user].tolist() == [verified] * trees.width
        assert record.accepted[0, user].tolist() == [accepted] * trees.width
        if record.root_alone is not None and verified:
            assert bool(record.root_alone[0, user]) == (ratio(guess[0], exact[0]) < threshold)
        wanted = guess if accepted else exact
        torch.testing.assert_close(out[user, : len(parents)], wanted, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def model() -> ReferenceLlama:
    return ReferenceLlama.random(tiny_config(), seed=2)


def tree_logits(model: ReferenceLlama, policy, parents: list[int]) -> torch.Tensor:
    cache = model.new_cache(1)
    model.prefill([random_tokens(80, seed=3)], cache)
    tokens = torch.tensor([random_tokens(len(parents), seed=4)])
    return model.forward(tokens, cache, policy=policy, tree=TokenTree.from_parents(parents), logits="all", commit=False)


def test_the_ends_of_the_threshold_are_exact_and_sink_attention_bit_for_bit(model) -> None:
    parents = [-1, 0, 0, 1, 1, 2, 3]
    nothing, everything = (ALSpecAttention(t, RANGE) for t in (0.0, math.inf))
    assert torch.equal(tree_logits(model, nothing, parents), tree_logits(model, ExactAttention(RANGE), parents))
    assert torch.equal(tree_logits(model, everything, parents), tree_logits(model, SinkAttention(RANGE), parents))
    assert nothing.statistics.hit_rate == 0 and everything.statistics.hit_rate == 1


def test_one_node_is_the_plain_speculative_step_bit_for_bit(model) -> None:
    alone, plain = ALSpecAttention(0.5, RANGE), ALSpecAttention(0.5, RANGE)
    logits = tree_logits(model, alone, [-1])
    cache = model.new_cache(1)
    model.prefill([random_tokens(80, seed=3)], cache)
    assert torch.equal(logits, model.forward(torch.tensor([random_tokens(1, seed=4)]), cache, policy=plain))
    assert torch.equal(alone.statistics.steps[0].accepted, plain.statistics.steps[0].accepted)


def test_what_is_no_tree_step_is_named() -> None:
    tree = TokenTree.from_parents([-1] + [0] * 256)
    for tokens, earlier in ((257, 0), (3, 254)):
        with pytest.raises(ValueError, match=f"one step, got {tokens} tokens after {earlier} earlier nodes"):
            ALSpecAttention(0.5, RANGE).begin_step(DecodeStep([40], [0], tokens, tree, RANGE), 1)
    with pytest.raises(ValueError, match="a step without a tree has no nodes"):
        DecodeStep([40], [0], 2).nodes(0)
