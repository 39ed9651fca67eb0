# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A two-layer Llama with its cache in pages gives bit for bit a plain cache's logits; Llama 3.1 8B's steps are built on
mock meshes."""

from __future__ import annotations

import pytest
import torch

from tests.models.tt.paged_cache_programs import plain_and_paged
from tests.support.tt_tolerances import prompt

pytestmark = pytest.mark.timeout(1500)


@pytest.mark.sim
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


def build_steps(mesh, users: int, sharding: str, speculate: bool) -> dict[str, tuple[int, ...]]:
    """In the worker: a decode step of two layers of Llama 3.1 8B with pages, a prompt's chunk after cached ones, and a
    step over trees where attention is exact."""
    from perf.footprint.mesh_build import build_model

    capacity, chunk = 4096, 128 if speculate else None
    model = build_model(mesh, "performance", users, capacity, 2, chunk, decode_sharding=sharding, cache_blocks=70)
    model.cache.set_page_table(torch.arange(users * capacity // 64).view(users, -1) % 69 + 1)
    found = {"decode": model.decode(model.step_inputs([0] * users, [capacity - 1] * users))}
    found["prefill"] = model.prefill([0] * 128, users - 1, capacity - 128, last=True)
    if not speculate:
        walk = torch.arange(4).repeat(users, 1)
        found["tree"] = model.decode(model.tree_inputs(walk, [8] * users, walk, torch.full_like(walk, 3)))
    return {name: tuple(tensor.shape) for name, tensor in found.items()}


@pytest.mark.mock_mesh
@pytest.mark.parametrize(
    "shape, users, sharding, speculate",
    [
        ((1, 1), 4, "sharded", False),
        pytest.param((2, 2), 2, "sharded", True, marks=pytest.mark.slow),
        pytest.param((1, 2), 8, "interleaved", False, marks=pytest.mark.slow),
        pytest.param((2, 1), 8, "interleaved", True, marks=pytest.mark.slow),
    ],
)
def test_steps_of_llama_8b_are_built(mock_mesh, shape, users, sharding, speculate):
    found = mock_mesh(shape).run(build_steps, users, sharding, speculate, timeout=1400)
    assert found["decode"] == (1, 1, users, 128256) and found["prefill"] == (1, 1, 32, 128256)
    assert speculate or found["tree"] == (1, 1, users * 4, 128256)
