# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Two simulated chips: the stock fabric carries collectives and the exchange between them."""

from __future__ import annotations

import pytest
import torch

from tests.runtime_patches.simulated_n150.mesh.mesh_programs import first_writes_body, gather_body
from tests.support.sgdc_pair import USERS, draw_layers, layers_body
from tt_kernels.common import reference

PAIRS = [((1, 2), 1), ((2, 1), 0)]


@pytest.mark.sim
@pytest.mark.parametrize(("shape", "axis"), PAIRS)
def test_all_gather(sim_mesh, shape, axis):
    x = torch.randn(1, 1, 32, 128, generator=torch.Generator().manual_seed(1)).bfloat16()
    for part in sim_mesh(shape).run(gather_body, x, 3, axis):
        assert torch.equal(part, x)


@pytest.mark.sim
@pytest.mark.parametrize(("shape", "axis"), PAIRS)
def test_exchange_and_gate(sim_mesh, shape, axis):
    """The body of the silicon test: after each layer both chips hold the sender's values."""
    layers = draw_layers(8)
    found, failure, sent = sim_mesh(shape).run(layers_body, layers, shape=(32, 64), pair_axis=axis)
    senders = [reference.sender(rows, USERS) for rows, _ in layers]
    assert failure is None
    for number, ((rows, values), sender, (held, gathered, summed)) in enumerate(
        zip(layers, senders, found, strict=True)
    ):
        value = float(values[sender])
        assert held == [[value], [value]] and gathered == [rows, rows], f"layer {number}"
        assert summed == [[0.0 if max(row) == 0 else 2 * value] for row in rows], f"layer {number}"
    assert sent == [senders.count(0), senders.count(1)] and min(sent) > 0


@pytest.mark.sim
def test_no_time_goes_by_while_the_host_writes(sim_mesh):
    """Not while a worker is used for the first time either: one chip's program would run, and write to another, before
    that one has what the host wrote earlier."""
    sim_mesh((1, 2), "2x1").kill()  # which another test may have used
    assert sim_mesh((1, 2), "2x1").run(first_writes_body) == 0
