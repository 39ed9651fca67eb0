# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Guesses that follow the attention, against loops over single keys in float64."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llama31_8b.reference.alspec.followed import MassFollower, heaviest_tiles
from models.llama31_8b.reference.alspec.policies import (
    ALSpecAttention,
    ExactAttention,
    SinkAttention,
    StaticAttention,
)
from models.llama31_8b.reference.model.attention import OneQuery, Segments
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import DecodeStep, GuessRange
from tests.support.attention_cases import random_tokens, tiny_config, tree_of

RANGE = GuessRange(32, 32, 32, whole_tail=True, tiles=1)
LENGTHS = (5, 90, 97, 160, 230)


@pytest.fixture(scope="module")
def model() -> ReferenceLlama:
    return ReferenceLlama.random(tiny_config(), seed=2)


@pytest.fixture(scope="module")
def cache(model: ReferenceLlama):
    cache = model.new_cache(len(LENGTHS), 256)
    model.prefill([random_tokens(n, seed=n) for n in LENGTHS], cache)
    return cache


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.0, 0.25, 0.5, 0.5, 1.0, 7.0]), min_size=1, max_size=12),
    st.integers(0, 5),
    st.integers(0, 4),
    st.integers(0, 13),
)
def test_tiles_are_chosen_by_mass_and_then_by_number(mass, count, first, end):
    ranked = sorted((-heavy, tile) for tile, heavy in enumerate(mass) if first <= tile < end and heavy > 0)
    chosen = heaviest_tiles(torch.tensor(mass), count, first, torch.tensor([end]))
    assert chosen.nonzero().flatten().tolist() == sorted(tile for _, tile in ranked[:count])


class Recorded(ALSpecAttention):
    """Keeps of every call the queries, keys and values, and what the policy decided."""

    def __init__(self, threshold: float, guess_range: GuessRange) -> None:
        super().__init__(threshold, guess_range)
        self.calls: list[tuple[int, DecodeStep, OneQuery, torch.Tensor]] = []

    def begin_step(self, step: DecodeStep, layers: int) -> None:
        super().begin_step(step, layers)
        self.step = step

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        out = super().attend(layer, segments)
        assert isinstance(segments, OneQuery)
        self.calls.append((layer, self.step, segments, out))
        return out


def by_single_keys(query, keys, values, span: GuessRange, before: list[list[float]] | None):
    """(guess, exact, masses by tile) of one user and layer in float64, key by key. query: [kv_heads, g, d]."""
    cached, groups = keys.shape[1], []
    tail = (cached // 32 * 32 if span.whole_tail else -(-cached // 32) * 32) - span.last
    guesses, exacts, masses = [], [], []
    for head in range(len(keys)):
        known = [0.0] * (cached // 32 + 1) if before is None else before[head]
        middle = [(-mass, tile) for tile, mass in enumerate(known) if span.first <= 32 * tile < tail and mass > 0]
        tiles = [tile for _, tile in sorted(middle)[: span.tiles]]
        read = [key for key in range(cached) if key < span.first or key >= tail or key // 32 in tiles]
        mass = [0.0] * (cached // 32 + 1)
        for query_head in query[head].double():
            weights = [math.exp(float(query_head @ key.double())) for key in keys[head]]
            total, seen = sum(weights), sum(weights[key] for key in read)
            for key, weight in enumerate(weights):
                mass[key // 32] += weight / total
            exacts.append(sum(w / total * v.double() for w, v in zip(weights, values[head], strict=True)))
            guesses.append(sum(weights[key] / seen * values[head][key].double() for key in read))
        masses.append(mass)
        groups.append(tiles)
    return torch.cat(guesses), torch.cat(exacts), masses, groups


def test_guesses_decisions_and_tiles_are_those_of_single_keys(model, cache):
    """Users at different positions, two of them bypassed at first; then one by itself, whose hits change the sender."""
    speculate(model, cache, 6)
    changes = speculate(model, cache.view([4]), 12)
    assert 5 < sum(changes) < len(changes) - 5, "both ranks send"


def speculate(model, cache, steps: int) -> list[int]:
    """Compare `steps` steps of all users; return the sender of each layer."""
    policy = Recorded(0.4, RANGE)
    mine = cache.clone()
    for step in range(steps):
        tokens = torch.tensor([[random_tokens(steps, seed=70 + user)[step]] for user in range(mine.batch)])
        model.forward(tokens, mine, policy=policy)
    known: dict[tuple[int, int, int], list[list[float]]] = {}
    checked = followed = sender = 0
    hits: list[bool] = []
    changes = []
    for layer, step, segments, out in policy.calls:
        if segments.rows.start == 0:  # the layer's first group of users
            sender = 0 if layer == 0 else sender ^ all(hits)
            changes.append(sender)
            hits = []
        for row in range(segments.rows.start, segments.rows.stop):
            heads = len(segments.keys) // segments.users
            at = slice((row - segments.rows.start) * heads, (row - segments.rows.start + 1) * heads)
            guess, exact, masses, tiles = by_single_keys(
                segments.query[at], segments.keys[at], segments.values[at], RANGE, known.get((sender, layer, row))
            )
            known[sender, layer, row] = masses
            distance, norm = float((guess - exact).norm()), float(exact.norm())
            if segments.keys.shape[1] < 96:
                expected = exact
                hits.append(False)
            else:
                assert abs(distance - 0.4 * norm) > 1e-4 * norm, "a near tie proves nothing"
                expected = guess if distance < 0.4 * norm else exact
                followed += any(tiles)
                hits.append(distance < 0.4 * norm)
            torch.testing.assert_close(out[row - segments.rows.start].double(), expected, atol=2e-5, rtol=0)
            checked += 1
    statistics = policy.statistics
    assert checked == steps * 3 * mine.batch and followed >= steps * 2
    assert statistics.hits > 5 and statistics.misses > 5 and (statistics.bypassed > 0) == (mine.batch > 1)
    return changes


@pytest.mark.parametrize("user", range(len(LENGTHS)))
def test_a_chain_decides_as_one_token_after_another(model, cache, user):
    cache = cache.view([user])
    tokens = torch.tensor([random_tokens(9, seed=80 + user)])
    single, chain = ALSpecAttention(0.4, RANGE), ALSpecAttention(0.4, RANGE)
    one, many = cache.clone(), cache.clone()
    steps = [model.forward(tokens[:, i : i + 1], one, policy=single) for i in range(9)]
    whole = model.forward(tokens[:, :1], many, policy=chain)
    rest = model.forward(tokens[:, 1:], many, policy=chain, logits="all")
    torch.testing.assert_close(torch.cat((whole, rest), 1), torch.cat(steps, 1), atol=1e-4, rtol=1e-4)
    assert single.statistics.decisions_per_token() == chain.statistics.decisions_per_token()
    assert len(chain.statistics.decisions_per_token()) == 9


def test_threshold_0_is_bit_identical_to_exact(model, cache):
    """Where both ranges bypass the same positions: others add up the same keys in another order."""
    cache = cache.view([0, 2, 3, 4]).clone()
    tokens = torch.tensor([random_tokens(5, seed=user) for user in range(cache.batch)])

    def run(policy) -> torch.Tensor:
        mine = cache.clone()
        return torch.cat([model.forward(tokens[:, i : i + 1], mine, policy=policy) for i in range(5)], dim=1)

    ends = GuessRange(RANGE.first, RANGE.last, 32, whole_tail=True)
    alspec = ALSpecAttention(0.0, RANGE)
    assert torch.equal(run(alspec), run(ExactAttention(ends)))
    assert alspec.statistics.hits == 0 and alspec.statistics.misses > 0


def test_masses_are_forgotten_where_the_last_pass_was_not_the_step_before(model, cache):
    """After a turn and a rollback a user is guessed from first and last alone; the users beside it are not touched."""
    policy = ALSpecAttention(0.4, RANGE)
    mine = cache.clone()
    tokens = torch.tensor([random_tokens(8, seed=90 + user) for user in range(mine.batch)])
    follower = policy.follower
    assert isinstance(follower, MassFollower) and follower.known(0, 0, 3) is None
    model.forward(tokens[:, :1], mine, policy=policy)
    before = follower.known(0, 0, 3)
    assert before is not None and before.shape == (model.config.num_key_value_heads, 161 // 32 + 1)
    torch.testing.assert_close(before.sum(1), torch.full((len(before),), 1.0 * before.sum(1)[0]))  # query heads a head
    model.prefill([[1, 2, 3]], mine.user(3))
    seen: dict[int, torch.Tensor] = {}
    real = follower._before

    def watched(layer, segments, row, mass):
        found = real(layer, segments, row, mass)
        if layer == 0:
            seen[segments.rows.start + row] = found
        return found

    follower._before = watched  # type: ignore[method-assign]
    model.forward(tokens[:, 1:2], mine, policy=policy)
    assert not seen[3].any() and all(seen[user].any() for user in (0, 1, 2, 4))
    mine.truncate([length - (user == 2) for user, length in enumerate(mine.lengths.tolist())])
    model.forward(tokens[:, 2:3], mine, policy=policy)
    assert not seen[2].any() and all(seen[user].any() for user in (0, 1, 3, 4))
    follower.reset()
    model.forward(tokens[:, 3:4], mine, policy=policy)
    assert not any(seen[user].any() for user in range(mine.batch))


@pytest.mark.parametrize("policy", [ExactAttention, SinkAttention, StaticAttention])
def test_only_verified_attention_can_be_followed(policy):
    with pytest.raises(ValueError, match="has no verified step to follow"):
        policy(RANGE)


def test_what_cannot_be_followed_is_named(model, cache):
    with pytest.raises(ValueError, match="tiles must be an integer of 0 or more, got -1"):
        GuessRange(32, 32, tiles=-1)
    with pytest.raises(ValueError, match="2 tiles of 32 keys beside a tail's alignment of 8"):
        GuessRange(32, 32, 8, tiles=2)
    with pytest.raises(ValueError, match="chunk_size 32 is not a multiple of 32 above 32"):
        GuessRange.followed(32)
    with pytest.raises(ValueError, match="at most 256 tokens of a text at once, got 257"):
        long = ReferenceLlama.random(replace(tiny_config(), max_position_embeddings=512), seed=2)
        long.forward(torch.zeros(1, 257, dtype=torch.int64), long.new_cache(1, 300), policy=ALSpecAttention(0.4, RANGE))
    parents = (-1, 0, 0)
    with pytest.raises(ValueError, match="not of a token tree"):
        model.forward(
            torch.zeros(cache.batch, 3, dtype=torch.int64),
            cache.clone(),
            policy=ALSpecAttention(0.4, RANGE),
            tree=tree_of(parents),
            commit=False,
        )


def test_the_default_reads_as_many_keys_as_both_ends():
    for chunk in (64, 128, 256):
        ends, followed = GuessRange.both_ends(chunk), GuessRange.followed(chunk)
        assert followed.first + followed.last + 32 * followed.tiles == ends.first + ends.last
        assert followed.bypass_below == ends.bypass_below and followed.whole_tail == ends.whole_tail
