# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The verification decision, accept when ||guess - exact|| < threshold * ||exact||, and its statistics, by hand."""

import math

import torch

from models.llama31_8b.reference.alspec.acceptance import SpeculationCounters, accept_guess


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
