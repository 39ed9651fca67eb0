# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A two-layer Llama with its cache in pages: logits are bit for bit those of a plain cache."""

from __future__ import annotations

import pytest
import torch

from tests.models.tt.paged_cache_programs import plain_and_paged
from tests.support.tt_tolerances import prompt

pytestmark = [pytest.mark.sim, pytest.mark.timeout(1500)]


@pytest.mark.parametrize(
    "grid, sharding, trees",
    [("2x1", "interleaved", True), pytest.param("8x8", "sharded", False, marks=pytest.mark.slow)],
)
def test_logits_are_those_of_a_plain_cache(sim_device, grid, sharding, trees):
    """Two users whose texts cross the border of a block in prefill, in decode steps and in a tree."""
    prompts = [prompt(126, 3), prompt(61, 4)]
    found = sim_device(grid).run(plain_and_paged, prompts, sharding, trees, timeout=1200)
    assert len(found["plain"]) == len(found["paged"]) == (7 if trees else 5)
    for number, (plain, paged) in enumerate(zip(found["plain"], found["paged"], strict=True)):
        assert torch.isfinite(plain).all() and torch.equal(plain, paged), number
