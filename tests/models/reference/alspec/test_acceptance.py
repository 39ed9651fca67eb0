# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The verification decision and its statistics against a dense computation in float64, written here from the
definitions: accept when ||guess - exact|| < threshold * ||exact||, per user and query, over all heads."""

import math

import pytest
import torch
from loguru import logger

from models.llama31_8b.reference.alspec.acceptance import accept_guess
from models.llama31_8b.reference.alspec.counters import SpeculationCounters
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.attention import decode_attention
from models.llama31_8b.reference.model.step import DecodeStep, GuessRange
from tests.support.attention_cases import dense_attention_of, guess_positions

HEADS, KV_HEADS, DIM = 6, 3, 16


def states(users: int, tokens: int, slots: int, seed: int, sharpness: float = 1.0):
    """Random query [users, tokens, h, d] and keys, values [users, kv, slots, d]."""
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(users, tokens, HEADS, DIM, generator=generator) * sharpness / math.sqrt(DIM)
    return query, *(torch.randn(users, KV_HEADS, slots, DIM, generator=generator) for _ in range(2))


def check(query, keys, values, lengths, policy: ALSpecAttention) -> torch.Tensor:
    """Compare one layer of one step with the dense computation; returns the dense decisions [users,
    tokens]."""
    users, tokens = query.shape[:2]
    step = DecodeStep(lengths, range(users), tokens, None, policy.guess_range)
    policy.begin_step(step, 1)
    out = decode_attention(policy, 0, query, keys, values, step)
    record = policy.statistics.steps[-1]
    decisions = torch.zeros(users, tokens, dtype=torch.bool)
    margin = math.inf
    for user in range(users):
        for token in range(tokens):
            slots = list(range(lengths[user] + token + 1))
            exact = dense_attention_of(query[user, token], keys[user], values[user], slots)
            picked = guess_positions(len(slots), policy.guess_range.last, policy.guess_range.alignment)
            guess = dense_attention_of(query[user, token], keys[user], values[user], picked)
            verified = len(slots) >= policy.guess_range.bypass_below
            distance, norm = (guess - exact).norm().item(), exact.norm().item()
            decisions[user, token] = verified and distance < policy.threshold * norm
            if verified and policy.threshold:
                margin = min(margin, abs(distance / norm / policy.threshold - 1))
            assert bool(record.verified[user, token]) == verified
            assert bool(record.accepted[0, user, token]) == bool(decisions[user, token])
            chosen = guess if decisions[user, token] else exact
            torch.testing.assert_close(out[user, token].double(), chosen, rtol=0, atol=1e-5)
    logger.info(
        "{} of {} accepted, closest call {:.1e} from the threshold",
        int(decisions.sum()),
        decisions.numel(),
        margin,
    )
    assert margin > 1e-5, "too close to call in float32: choose another seed"
    return decisions


@pytest.mark.parametrize("chunk,alignment,tokens", [(32, 32, 1), (64, 32, 1), (16, 1, 1), (24, 8, 1), (32, 8, 11)])
def test_random_decisions(chunk: int, alignment: int, tokens: int) -> None:
    lengths = [150, 150, 33, 201, 2 * chunk - 1, 2 * chunk + 40, 5, 260]
    seen = torch.zeros(0, dtype=torch.bool)
    for seed, threshold in enumerate((0.3, 0.6, 0.9, 1.2)):
        tensors = states(len(lengths), tokens, 260 + tokens, seed, sharpness=2.0)
        policy = ALSpecAttention(threshold, GuessRange.both_ends(chunk, alignment))
        seen = torch.cat((seen, check(*tensors, lengths, policy).flatten()))
    assert seen.any() and not seen.all()


@pytest.mark.parametrize("alignment", [1, 8, 32])
@pytest.mark.parametrize("offset", [-1, 0, 1, 8, 33])
def test_boundary_of_two_chunks(offset: int, alignment: int) -> None:
    """2S - 1 cached tokens, the query's own included: bypassed; from 2S on: verified."""
    chunk = 32
    cached = 2 * chunk + offset
    policy = ALSpecAttention(0.5, GuessRange.both_ends(chunk, alignment))
    query, keys, values = states(1, 1, cached, seed=1)
    decisions = check(query, keys, values, [cached - 1], policy)
    statistics = policy.statistics
    if offset < 0:
        assert (statistics.hits, statistics.misses, statistics.bypassed) == (0, 0, 1)
        assert statistics.hit_rate is None and statistics.bypassed_positions == 1
    else:
        assert statistics.hits + statistics.misses == 1 and statistics.bypassed == 0
    if offset == 0:  # no middle: the guess is the exact result, so any positive threshold accepts it and 0 does not
        assert decisions.all()
        nothing = ALSpecAttention(0.0, GuessRange.both_ends(chunk, alignment))
        assert not check(query, keys, values, [cached - 1], nothing).any()


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
