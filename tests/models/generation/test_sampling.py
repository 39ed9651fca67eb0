# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Warpers against plain loops, draws at the borders of tokens, and what is refused."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.llama31_8b.generation.sampling import (
    SamplingParams,
    choose_tokens,
    filter_logits,
    inverse_cdf,
    make_generators,
    warp_logits,
)


def plain_warp(logits: list[float], params: SamplingParams) -> list[float]:
    """The reference for one row, in plain Python floats."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if params.temperature == 0:
        return [float(i == order[0]) for i in range(len(logits))]
    kept = order[: params.top_k] if params.top_k else order
    weight = {i: math.exp((logits[i] - logits[order[0]]) / params.temperature) for i in kept}
    total, mass, nucleus = sum(weight.values()), 0.0, []
    for i in kept:
        nucleus.append(i)
        mass += weight[i] / total
        if mass >= params.top_p:
            break
    total = sum(weight[i] for i in nucleus)
    return [weight[i] / total if i in nucleus else 0.0 for i in range(len(logits))]


@given(
    st.lists(st.integers(-6, 6), min_size=1, max_size=12),
    st.sampled_from([0.0, 0.3, 0.7, 1.0, 2.0]),
    st.sampled_from([0, 1, 3, 50]),
    st.sampled_from([0.05, 0.37, 0.83, 1.0]),
)
def test_warpers_match_plain_loops(logits, temperature, top_k, top_p):
    # Distinct fractions keep the nucleus boundary away from exact ties of mass; equal logits stay frequent.
    params = SamplingParams(temperature, top_k, top_p)
    values = [v * 0.731 for v in logits]
    got = warp_logits(torch.tensor([values, values]), params)
    expected = torch.tensor(plain_warp(values, params))
    torch.testing.assert_close(got, expected.expand(2, -1), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"temperature": -0.5}, "temperature.*-0.5"),
        ({"temperature": math.nan}, "temperature.*nan"),
        ({"top_k": -1}, "top_k.*-1"),
        ({"top_p": 0.0}, "top_p.*0.0"),
        ({"seed": -3}, "seed.*-3"),
        ({"seed": 2**63}, "seed.*9223372036854775808"),
    ],
)
def test_bad_parameters_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        SamplingParams(**fields)


ANY_FLOAT = st.floats(width=64)  # NaN, infinities and subnormal numbers too
ANY_INTEGER = st.integers(-3, 40) | st.integers(-(2**70), 2**70)
DISTINCT = torch.tensor([[0.25, -1e38, 3.0, 3e38, -2.5, 1.75], [2.0, -1.0, 0.5, -7.0, 0.0, 1.0]])


@given(ANY_FLOAT | st.floats(0, 1e-30), ANY_INTEGER, ANY_FLOAT | st.floats(0, 1), ANY_INTEGER)
def test_whatever_the_options_a_token_is_chosen_or_they_are_refused(temperature, top_k, top_p, seed):
    try:
        params = SamplingParams(temperature, top_k, top_p, seed)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    tokens = choose_tokens(DISTINCT, params, make_generators(params, 2))
    assert all(0 <= token < 6 for token in tokens)
    if temperature < 1e-3 or top_k == 1 or top_p < 1e-3:
        assert tokens == [3, 0]


def test_bad_tensors_are_refused():
    with pytest.raises(ValueError, match="NaN in 1 of 2 rows"):
        warp_logits(torch.tensor([[1.0, math.nan], [0.0, 1.0]]), SamplingParams())
    with pytest.raises(ValueError, match=r"NaN in rows \[0\]"):
        choose_tokens(torch.tensor([[1.0, math.nan], [0.0, 1.0]]), SamplingParams(), [])
    with pytest.raises(ValueError, match="temperature above 0"):
        filter_logits(torch.zeros(3), SamplingParams())
    with pytest.raises(ValueError, match=r"rows \[1\]"):
        inverse_cdf(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([0.5, 0.5]))


def test_tokens_without_mass_are_never_drawn():
    weights = torch.tensor([[0.0, 0.2, 0.0, 0.8, 0.0]])
    edges = torch.tensor([0.0, 0.2, 0.2 - 1e-17, 0.5, 1.0 - 2.0**-53], dtype=torch.float64)
    drawn = inverse_cdf(weights.expand(5, -1), edges)
    assert set(drawn.tolist()) <= {1, 3} and drawn[0] == 1 and drawn[-1] == 3
