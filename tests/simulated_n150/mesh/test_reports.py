# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a mesh says about itself: nothing while all is well, and where it stands when it is not."""

from __future__ import annotations

import pytest
import torch

from tests.simulated_n150.mesh.mesh_programs import large_tensor_body


@pytest.mark.sim
def test_long_transfers_are_no_deadlock(sim_mesh):
    worker = sim_mesh((1, 2))
    before = worker.links.cycle()
    x = torch.randint(-8, 9, (1, 1, 512, 2048)).float()
    for part in worker.run(large_tensor_body, x):
        assert torch.equal(part.float(), 2 * x)
    assert worker.links.cycle() - before > 100_000, "long enough for the watch to look twice"
    assert worker.diagnosis() == ""
