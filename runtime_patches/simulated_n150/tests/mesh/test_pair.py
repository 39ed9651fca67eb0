# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Two simulated chips: the stock fabric carries collectives."""

from __future__ import annotations

import pytest
import torch

from runtime_patches.simulated_n150.tests.mesh.mesh_programs import first_writes_body, gather_body

PAIRS = [((1, 2), 1), ((2, 1), 0)]


@pytest.mark.sim
@pytest.mark.parametrize(("shape", "axis"), PAIRS)
def test_all_gather(sim_mesh, shape, axis):
    x = torch.randn(1, 1, 32, 128, generator=torch.Generator().manual_seed(1)).bfloat16()
    for part in sim_mesh(shape).run(gather_body, x, 3, axis):
        assert torch.equal(part, x)


@pytest.mark.sim
def test_no_time_goes_by_while_the_host_writes(sim_mesh):
    """Not while a worker is used for the first time either: one chip's program would run, and write to another, before
    that one has what the host wrote earlier."""
    sim_mesh((1, 2), "2x1").kill()  # which another test may have used
    assert sim_mesh((1, 2), "2x1").run(first_writes_body) == 0
