# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The same program, the same packets at the same cycles: again, and without compiled execution."""

from __future__ import annotations

import pytest
import torch

from tests.simulated_n150.mesh.mesh_programs import gather_body
from tests.support.sgdc_pair import draw_layers, layers_body


def packets_of(worker):
    """What every link carried and when, over a collective and exchanges; the clock at their end; what they gave."""
    x = torch.randn(1, 1, 32, 128, generator=torch.Generator().manual_seed(2)).bfloat16()
    worker.links.record()
    gathered = worker.run(gather_body, x, 3, 1)
    held = worker.run(layers_body, draw_layers(3), shape=(32, 64))
    found = worker.links.recorded(), worker.links.cycle(), [part.tolist() for part in gathered], held
    worker.kill()
    return found


@pytest.mark.sim
def test_two_runs_and_a_run_in_python_carry_the_same_packets_at_the_same_cycles(sim_mesh):
    packets, cycle, *results = packets_of(sim_mesh((1, 2)))
    assert len(packets) > 50 and {delivery.source for delivery in packets} >= {
        "chip 0 channel 1",
        "chip 1 channel 7",
    }
    for variables in ({}, {"SIMULATED_N150_BURST": "0"}):
        again, end, *others = packets_of(sim_mesh((1, 2), variables=variables))
        assert others == results
        for number, (one, other) in enumerate(zip(packets, again)):
            assert one == other, f"packet {number} of {len(packets)}, {variables}"
        assert (len(again), end) == (len(packets), cycle)
