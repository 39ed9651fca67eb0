# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter on simulated chips: continuous batching with traces, sampling on the chips, and steps that overlap."""

from __future__ import annotations

import random

import pytest

from .plugin_side import Request, drawn_request, prompt_of
from .serving_programs import built, served, speculated

pytestmark = pytest.mark.timeout(1500)


@pytest.mark.sim
def test_requests_that_come_and_go_get_the_text_they_have_alone(sim_device):
    draw = random.Random(3)
    requests = [drawn_request(n, draw, vocab=96, longest=40) for n in range(4)]
    found = sim_device("2x1", dispatch="fast").run(served, requests, 2, 2, timeout=1400)
    assert found["together"] == found["alone"]
    assert max(found["sizes"]) > 1
    replays = found["replays"]
    assert replays["drawn"] > 1 and replays["greedy"] > 1 and replays["logits"] == 1, "of each, the warm-up replays one"


@pytest.mark.sim
@pytest.mark.parametrize("drafter", ["twin", pytest.param("self", marks=pytest.mark.slow)])
def test_a_model_drafts_in_pages(sim_device, drafter):
    """Two sequences that cross a block's border, in which no token is within 0.17 of the likeliest. Drafts of the
    target's twin are all right, which shows that its pages hold what they should."""
    requests = [Request(prompt_of(30, 9, 96), 7), Request(prompt_of(58, 26, 96), 9)]
    found = sim_device("2x1", dispatch="fast").run(speculated, requests, drafter, 3, timeout=1400)
    assert found["drafted"] == found["plain"]
    assert max(right for right, _ in found["counts"]) == 3
    assert drafter == "self" or all(right == offered for right, offered in found["counts"])


@pytest.mark.mock_mesh
@pytest.mark.parametrize(
    "shape, users",
    [
        ((1, 1), 32),
        pytest.param((1, 1), 8, marks=pytest.mark.slow),
        pytest.param((1, 2), 8, marks=pytest.mark.slow),
        pytest.param((1, 4), 1, marks=pytest.mark.slow),
        pytest.param((1, 8), 32, marks=pytest.mark.slow),
    ],
)
def test_steps_of_llama_8b_are_built(mock_mesh, shape, users):
    found = mock_mesh(shape).run(built, users, timeout=1400)
    assert found["logits"] == (1, 1, users, 128256) and found["greedy"] == found["drawn"] == (1, users)
    if users <= 8:
        assert found["verification"] == (1, 1, users * 4, 128256) and found["chosen"] == (1, users * 4)
