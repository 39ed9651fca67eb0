# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sender and receiver as two chips of a simulated mesh, the guess carried by the stock fabric."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.speculative_flash_decode.flash_decode_pair import gathered_row
from tests.kernels.speculative_flash_decode.flash_decode_programs import Case, upload, upload_words
from tests.kernels.speculative_flash_decode.test_speculative_flash_decode_pair import (
    HIT,
    MISS,
    expected_layers,
)
from tt_kernels.common.priority import ACCEPTED, REJECTED

GRID, EXCHANGE = "2x2", (0, 1)
CASE = Case(2, 1, 64, 96, 32, users=1, workers=1)


def layers_body(mesh, case: Case, pair_axis, q, k, v, layers, initial):
    """Run `layers` (threshold, positions) on the chips of a pair; priorities carry over, gathered by the host.

    Returns of each layer each chip's outputs and priorities, then calls and guesses sent of both chips.
    """
    import ttnn

    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.priority import MAX_USERS, priority_row
    from tt_kernels.speculative_flash_decode.op import Peer, ProgramConfig, speculative_flash_decode

    def a_chip_each(parts):
        mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
        return ttnn.from_torch(
            torch.cat(parts), dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh, mesh_mapper=mapper
        )

    pairs = ChipPairs(mesh, pair_axis, EXCHANGE)
    config = ProgramConfig((2, 1), workers_a_head=case.workers)
    rows = a_chip_each([priority_row(row) for row in initial])
    before, results = [list(row) for row in initial], []
    for index, (threshold, positions) in enumerate(layers):
        tensors = [upload(mesh, part) for part in (q, k.roll(index, 2), v.roll(index, 2))]
        peer = Peer(pairs, gathered_row(mesh, before), 2e-3)
        outputs = speculative_flash_decode(
            *tensors, upload_words(mesh, positions, "int32"), chunk_size=case.chunk_size, threshold=threshold,
            priority=rows, peer=peer, program_config=config,
        )  # fmt: skip
        pairs.check()
        before = [
            ttnn.to_torch(part).flatten()[:MAX_USERS][: case.users].int().tolist()
            for part in ttnn.get_device_tensors(rows)
        ]
        found = [{}, {}]
        for name, value in outputs._asdict().items():
            for chip, part in enumerate(ttnn.get_device_tensors(value)):
                found[chip][name] = ttnn.to_torch(part)
        results.append((found, before))
    return results, [(state.calls, state.sent) for state in pairs.states()]


@pytest.mark.sim
def test_roles_and_outcomes_alternate_between_chips(sim_mesh):
    layers = [(HIT, [64]), (HIT, [95]), (MISS, [70]), (HIT, [40]), (HIT, [80])]
    initial = [[REJECTED], [ACCEPTED]]
    inputs = CASE.random(5)
    expected = expected_layers(CASE, inputs, layers, initial)
    results, states = sim_mesh((2, 1), GRID).run(layers_body, CASE, 0, *inputs, layers, initial)
    for index, (layer, (outputs, after)) in enumerate(zip(expected, results, strict=True)):
        mine, theirs = outputs[layer.sender], outputs[1 - layer.sender]
        for name in ("exact", "guess"):
            reference = getattr(layer.results, name)
            torch.testing.assert_close(mine[name].double(), reference, atol=0.03, rtol=0.02)
            assert torch.equal(theirs[name], mine["guess"]), f"layer {index}: the receiver holds the guess"
        assert not theirs["distance_sq"].any() and not theirs["norm_sq"].any()
        assert after == layer.after, f"layer {index}, member {layer.sender} sent"
    sent = [[layer.sender for layer in expected].count(member) for member in (0, 1)]
    assert states == [(len(layers), count) for count in sent] and min(sent) >= 1
