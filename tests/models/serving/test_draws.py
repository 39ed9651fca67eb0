# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""From the plugin's parameters to draws: numbers of a seed and a position, and parameters that mean greedy."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from scipy.stats import kstest

from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.serving.draws import number_at, requested_draws


def test_numbers_of_a_seed_are_uniform_and_of_nothing_else():
    numbers = [number_at(seed, position) for seed in (0, 5, -3, 2**63) for position in range(500)]
    assert len(set(numbers)) == len(numbers) and kstest(numbers, "uniform").pvalue > 1e-3
    assert number_at(5, 17) == number_at(5, 17) and 0 <= min(numbers) <= max(numbers) < 1


def test_draws_of_requests():
    params = SimpleNamespace(
        temperature=[0.0, 0.7, 0.7, 1.5, 1.0], top_k=[258, 1, 20, 258, -1], top_p=[1.0, 0.0, 0.9, 1.0, 1.0],
        seed=[1, 2, 3, None, 4],
    )  # fmt: skip
    draws = requested_draws(params, torch.tensor([3, 4, 5, 6, -1]), 258, lambda: 0.25)
    greedy = SamplingParams()
    assert [draw.params for draw in draws] == [
        greedy, greedy, SamplingParams(0.7, 20, 0.9), SamplingParams(1.5), greedy
    ]  # fmt: skip
    assert draws[2].number == number_at(3, 6) and draws[3].number == 0.25
