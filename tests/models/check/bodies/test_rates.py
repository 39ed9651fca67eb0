# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The times that boards are asked for, by replays on a simulated chip. The stage: test_model_stages.py."""

from __future__ import annotations

import math

import pytest

from models.llama31_8b.check.bodies.rates import LAUNCHES


def timed(device) -> dict:
    """In the worker: time an addition; count its launches, and traces that were left."""
    import torch
    import ttnn

    from models.llama31_8b.check.bodies.rates import nanoseconds

    ones = ttnn.from_torch(torch.ones(1, 1, 32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    launched = 0

    def launch():
        nonlocal launched
        launched += 1
        return ttnn.add(ones, ones)

    ttnn.deallocate(launch())
    before = ttnn.get_memory_view(device, ttnn.BufferType.TRACE).total_bytes_allocated_per_bank
    ns = nanoseconds(device, launch)
    after = ttnn.get_memory_view(device, ttnn.BufferType.TRACE).total_bytes_allocated_per_bank
    return {"ns": ns, "launched": launched, "left": after - before, "sum": float(ttnn.to_torch(launch()).mean())}


@pytest.mark.sim
@pytest.mark.timeout(900)
def test_launches_are_timed_by_replays(sim_device):
    told = sim_device("2x1", dispatch="fast").run(timed)
    assert math.isfinite(told["ns"]) and told["launched"] == 1 + 1 + (1 + LAUNCHES)
    assert told["left"] == 0 and told["sum"] == 2.0


def built(mesh) -> list:
    """In the worker: the checks of a board, with one launch for each time."""
    from unittest import mock

    from models.llama31_8b.check.bodies import rates
    from models.llama31_8b.check.context import Context

    with mock.patch.object(rates, "nanoseconds", lambda device, launch: launch() is not None and 1000.0):
        return [(check.name, check.measured) for check in rates.rates(Context("n150", mesh))]


@pytest.mark.mock_mesh
@pytest.mark.timeout(900)
def test_the_shapes_of_boards_build(mock_mesh):
    """Both ops allocate and build at 8B shapes; nothing executes."""
    told = dict(mock_mesh((1, 1)).run(built))
    rates = {name: facts["bytes"] for name, facts in told.items() if isinstance(facts, dict)}
    assert rates == {
        "product with 14336 x 4096 in bfloat8_b": 14336 // 32 * 4224 // 32 * 1088,
        "flash decode of 8 x 4096 x 128 in bfloat8_b": 2 * 8 * 4096 * 128 // 1024 * 1088,
    }
