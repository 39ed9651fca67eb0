# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention policies: what each selects, and the identities that tie them together, on whole models; decisions of tree
steps, one per user and layer, against a dense computation in float64; and by hand the decision, accept when
||guess - exact|| < threshold * ||exact||, and its statistics."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loguru import logger

from models.llama31_8b.reference.alspec.acceptance import SpeculationCounters, accept_guess
from models.llama31_8b.reference.alspec.policies import (
    ALSpecAttention,
    AttentionPolicy,
    ExactAttention,
    SinkAttention,
    StaticAttention,
)
from models.llama31_8b.reference.model.attention import decode_attention
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import DecodeStep, GuessRange
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from tests.support.attention_cases import dense_attention_of, filled, guess_positions, path_to, random_tokens

FINE = GuessRange.both_ends(16, 4)
LENGTHS = (3, 31, 32, 33, 64, 70, 71, 150)


@pytest.fixture(scope="module")
def cache(model):
    return filled(model, LENGTHS, 200)


def decode(model: ReferenceLlama, cache, policy: AttentionPolicy) -> torch.Tensor:
    """Logits of six decode steps on fixed tokens, of a step of four, and of a tree of seven: [batch, 17, vocab]."""
    cache = cache.clone()
    tokens = torch.tensor([random_tokens(17, seed=50 + user) for user in range(cache.batch)])
    outs = [model.forward(tokens[:, i : i + 1], cache, policy=policy) for i in range(6)]
    outs.append(model.forward(tokens[:, 6:10], cache, policy=policy, logits="all"))
    tree = TokenTree.from_parents([-1, 0, 0, 1, 1, 2, 3])
    outs.append(model.forward(tokens[:, 10:], cache, policy=policy, tree=tree, logits="all", commit=False))
    return torch.cat(outs, dim=1)


def test_static_is_sink_on_its_layers_and_exact_on_the_others(model, cache) -> None:
    def run(*layers: int) -> torch.Tensor:
        return decode(model, cache, StaticAttention(FINE, layers))

    assert torch.equal(run(), decode(model, cache, ExactAttention(FINE)))
    assert torch.equal(run(0, 1, 2), decode(model, cache, SinkAttention(FINE)))
    mixed = run(1)
    assert not torch.allclose(mixed, run(), atol=1e-3) and not torch.allclose(mixed, run(0, 1, 2), atol=1e-3)


@settings(max_examples=200)
@given(
    cached=st.integers(1, 400),
    alignment=st.sampled_from([1, 2, 8, 32]),
    first=st.integers(1, 4),
    last=st.integers(1, 4),
    whole=st.booleans(),
)
def test_selected_keys_are_the_first_and_the_last_chunk(cached, alignment, first, last, whole) -> None:
    """The last in whole units of the alignment, which hold all of it where the tail is whole."""
    guess_range = GuessRange(first * alignment, last * alignment, alignment, whole)
    step = DecodeStep([cached - 1], [0], 1, None, guess_range)
    keys = step.masks(0, slice(0, 1))[1][0].nonzero().flatten().tolist()
    cut = guess_range.cut(cached)
    verified = cached >= (first + last) * alignment
    assert bool(step.eligible[0, 0]) == (cut is not None) == verified
    if first == last and whole:
        assert keys == guess_positions(cached, first * alignment, alignment)
    if cut is not None:
        least = last * alignment if whole else (last - 1) * alignment + 1
        assert cut[0] == first * alignment and cut[1] % alignment == 0 and 0 <= cached - cut[1] - least < alignment
        assert keys == [*range(cut[0]), *range(cut[1], cached)]
    elif first == last and whole:
        assert keys == list(range(cached)), "a bypassed query must lose nothing to the sink policy"


@pytest.mark.parametrize(
    "guess_range",
    [
        *(GuessRange.both_ends(*ends) for ends in ((16, 4), (16, 1), (16, 8), (32, 32))),
        *(GuessRange(32, 32, 32, True), GuessRange(32, 64), GuessRange(8, 24, 8, True)),
    ],
    ids=str,
)
def test_any_predictor_lies_between_exact_and_sink_attention(model, cache, guess_range) -> None:
    """Threshold 0 is exact attention and an infinite one is sink attention, bit for bit, of tree steps too."""
    exact, sink = ExactAttention(guess_range), SinkAttention(guess_range)
    nothing, everything = ALSpecAttention(0.0, guess_range), ALSpecAttention(math.inf, guess_range)
    assert torch.equal(decode(model, cache, nothing), decode(model, cache, exact))
    assert torch.equal(decode(model, cache, everything), decode(model, cache, sink))
    assert everything.statistics.hits == nothing.statistics.misses > 0
    assert nothing.statistics.hit_rate == 0 and everything.statistics.hit_rate == 1


BAD_POLICIES = [
    (lambda: ALSpecAttention(-0.1), r"threshold must be a number >= 0.*got -0.1"),
    (lambda: ALSpecAttention(math.nan), "got nan"),
    (lambda: ALSpecAttention("0.1"), "got '0.1'"),
    (lambda: ExactAttention(0), "chunk_size must be a positive integer, got 0"),
    (lambda: ExactAttention(32 * 10**19), "chunk_size must be at most 1073741824, got 3200"),
    (lambda: SinkAttention(12.5), "got 12.5"),
    (lambda: GuessRange.both_ends(128, 0), "tail_alignment must be a positive integer, got 0"),
    (lambda: ExactAttention(100), "chunk_size 100 is not a multiple of tail_alignment 32"),
    (lambda: GuessRange(16, 24, 16), "last 24 is not a multiple of the tail's alignment 16"),
    (lambda: GuessRange(0, 32), "first must be a positive integer, got 0"),
    (lambda: StaticAttention(128, [-1, 2]), r"layers must be 0 or more, got \[-1, 2\]"),
    (lambda: GuessRange.by_budget(32, 1), "budget must be a number between 0 and 1, got 1"),
    (lambda: GuessRange.by_budget(32, math.nan), "budget must be a number between 0 and 1, got nan"),
    (lambda: GuessRange(32, 32, 8, budget=0.5), "a budget of tiles of 32 keys beside a tail's alignment of 8"),
    *((lambda of=of: of(GuessRange.by_budget(32)), "no verified steps") for of in (ExactAttention, SinkAttention)),
    (lambda: StaticAttention(GuessRange.by_budget(32)), "has no verified steps for a budget to go by"),
]


@pytest.mark.parametrize("make,message", BAD_POLICIES)
def test_bad_options_are_named(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_static_layers_the_model_lacks_are_named(model, cache) -> None:
    with pytest.raises(ValueError, match=r"layers \[3, 40\] of a model with 3 layers"):
        decode(model, cache, StaticAttention(FINE, [1, 3, 40]))


HEADS, KV_HEADS, DIM = 4, 2, 8
RANGE = GuessRange.both_ends(16, 8)


@st.composite
def parent_arrays(draw) -> list[int]:
    """One tree: node 0 is the root."""
    count = draw(st.integers(1, 12))
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
        nodes = [dense_attention_of(query[user, n], keys[user], values[user], s) for n, s in enumerate(slots)]
        outs.append(torch.stack(nodes))
    return outs[0], outs[1]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(parent_arrays(), st.integers(20, 90)), min_size=1, max_size=3),
    st.sampled_from([0.3, 0.5, 0.7]),
    st.integers(0, 10**6),
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
        found = ((guess - exact).norm() / exact.norm()).item()
        verified = length + 1 >= 2 * 16
        logger.info("{} nodes, ratio {:.4f}, threshold {}", len(parents), found, threshold)
        if abs(found / threshold - 1) < 1e-5:
            continue
        accepted = verified and found < threshold
        assert record.verified[user].tolist() == [verified] * trees.width
        assert record.accepted[0, user].tolist() == [accepted] * trees.width
        wanted = guess if accepted else exact
        torch.testing.assert_close(out[user, : len(parents)], wanted, rtol=0, atol=1e-5)


def test_what_is_no_tree_step_is_named() -> None:
    tree = TokenTree.from_parents([-1] + [0] * 256)
    for tokens, earlier in ((257, 0), (3, 254)):
        with pytest.raises(ValueError, match=f"one step, got {tokens} tokens after {earlier} earlier nodes"):
            ALSpecAttention(0.5, RANGE).begin_step(DecodeStep([40], [0], tokens, tree, RANGE), 1)
    with pytest.raises(ValueError, match="a step without a tree has no nodes"):
        DecodeStep([40], [0], 2).nodes(0)


def test_the_comparison_is_strict_and_guards_degenerate_outputs() -> None:
    exact = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0], [3.0, 4.0]])
    guess = torch.tensor([[3.0, 4.5], [3.0, 4.0], [0.0, 0.0], [math.nan, 4.0]])
    assert accept_guess(guess, exact, 0.1).tolist() == [False, True, False, False]  # 0.5 < 0.1 * 5 is false
    assert accept_guess(guess, exact, 0.0).tolist() == [False] * 4
    assert accept_guess(guess, exact, math.inf).tolist() == [True] * 4


def test_norms_accumulate_in_float32_for_bfloat16_states() -> None:
    """4096 squared errors of 2^-16 stall a bfloat16 sum at 2^-8; in float32 they add up to 2^-4."""
    exact = torch.ones(1, 4096, dtype=torch.bfloat16)
    guess = (torch.ones(1, 4096) - 2.0**-8).to(torch.bfloat16)
    ratio = ((guess.double() - exact.double()).norm() / exact.double().norm()).item()
    assert accept_guess(guess, exact, ratio * 1.01).item() and not accept_guess(guess, exact, ratio * 0.99).item()


def test_statistics_add_up_by_layer_and_token() -> None:
    statistics = SpeculationCounters()
    first = statistics.begin_step(2, [4, 7], torch.tensor([[True], [False]]))
    first[0, 0] = True
    second = statistics.begin_step(2, [7], torch.tensor([[True, True, True]]))
    second[0, 0] = torch.tensor([True, False, True])
    second[1, 0] = torch.tensor([True, True, True])
    assert statistics.counts_per_layer() == [[3, 1, 1], [3, 1, 1]]
    assert statistics.hit_rate == 6 / 8 and statistics.hit_rate_per_layer == [0.75, 0.75]
    assert (statistics.hits, statistics.misses, statistics.bypassed) == (6, 2, 2)
    assert statistics.decisions_per_token(7) == [None, [True, True], [False, True], [True, True]]
    assert statistics.decisions_per_token(4) == [[True, False]] and statistics.bypassed_positions == 1

    statistics.keep_queries(0, [1])  # the other two draft tokens were rejected
    assert (statistics.hits, statistics.misses, statistics.bypassed) == (2, 2, 2)
    assert statistics.decisions_per_token(7) == [None, [False, True]]
    statistics.reset()
    assert statistics.hit_rate is None and statistics.hit_rate_per_layer == [] and statistics.hits == 0
