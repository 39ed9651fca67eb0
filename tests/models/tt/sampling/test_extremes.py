# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sampling parameters at the ends of their ranges, on the host of a mesh and as chips get them; no device."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.llama31_8b.generation.sampling import Draws, SamplingParams, make_generators
from tt_kernels.speculative_sampling.checks import check_temperature, nearest_temperature

LOGITS = torch.tensor([2.0, -1e38, 0.5, 3e38, 0.0, 1.0])
PARAMS = st.builds(
    SamplingParams,
    st.floats(0, allow_infinity=False) | st.floats(0, 1e-30),
    st.integers(0, 2**70),
    st.floats(0, 1, exclude_min=True),
    st.integers(0, 2**63 - 1),
)


@pytest.fixture(scope="module")
def engine():
    """An engine of a mesh as far as the host samples, which needs no chip."""
    pytest.importorskip("ttnn")
    from models.llama31_8b.tt.generator import ChipEngine

    made = object.__new__(ChipEngine)
    made.on_logits = None
    return made


@given(PARAMS)
def test_the_host_of_a_mesh_chooses_a_token(engine, params):
    engine.draws = Draws(params, make_generators(params, 1))
    chosen = engine._sampled(0, LOGITS)
    assert 0 <= chosen < 6
    if params.temperature < 1e-3 or params.top_k == 1 or params.top_p < 0.1:
        assert chosen == 3


@given(st.floats(0, exclude_min=True, allow_infinity=False))
def test_every_temperature_has_a_nearest_one_that_the_chips_take(temperature):
    nearest = check_temperature("temperature", nearest_temperature(temperature))
    assert nearest == temperature or temperature < 1e-4 == nearest or temperature > 1e4 == nearest
