# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""From the plugin's parameters to draws: numbers of a seed and a position, and parameters that mean greedy."""

from types import SimpleNamespace

import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.serving.draws import choose_on_host, number_at, penalised, requested_draws


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


# What vLLM's own checks let through.
REQUESTS = st.fixed_dictionaries(
    {
        "temperature": st.floats(0, allow_infinity=False) | st.floats(0, 1e-30),
        "top_k": st.integers(-1, 10) | st.integers(-1, 2**62),
        "top_p": st.floats(0, 1, exclude_min=True),
        "seed": st.none() | st.integers(-(2**63), 2**64),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "repetition_penalty": st.floats(0, exclude_min=True, allow_infinity=False),
    }
)


@given(REQUESTS, st.lists(st.integers(0, 5), max_size=4), st.floats(0, 1, exclude_max=True))
def test_whatever_a_request_asks_for_a_token_is_chosen(request, output, number):
    logits = torch.tensor([[0.25, -1e30, 3.0, 1e30, -2.5, 0.0]])
    params = SimpleNamespace(**{name: [value] for name, value in request.items()})
    (draw,) = draws = requested_draws(params, torch.tensor([7]), 6, lambda: number)
    history = torch.tensor([[3, -1]]), torch.tensor([[*output, -1]])
    given_logits = penalised(logits, params, *history)
    assert given_logits.isfinite().all()
    chosen = int(choose_on_host(given_logits, draws, torch.tensor([7])))
    assert 0 <= chosen < 6
    if draw.params.greedy or request["temperature"] < 1e-10 or request["top_p"] < 0.1:
        assert given_logits[0, chosen] == given_logits.max()
