# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the all-reduce refuses, and that it builds at Llama's shapes on eight chips."""

from __future__ import annotations

import pytest
import torch

from runtime_patches import sgdc
from tests.support.run_op import Call, In, Make, priorities, refusals, run_ops

OP, GATE = "tt_kernels.all_reduce.op:AllReduce", "tt_kernels.compute_gate.op"


@pytest.mark.mock_mesh
def test_what_is_refused_is_named(mock_mesh):
    zeros, op = torch.zeros(1, 1, 3, 128), Make(OP, 3, 128, device=True)

    def call(values=zeros, dtype="bfloat16", layout=None, **options) -> Call:
        return Call(op, In(values, dtype, layout=layout), **options)

    row = "must be bfloat16 TILE (1, 1, 3, 128), it is"
    calls = {
        "users must be 1 to 32, not 33": Call(OP, 33, 128, device=True),
        "users must be 1 to 32, not 0": Call(OP, 0, 128, device=True),
        "columns must be a positive multiple of 32, not 100": Call(OP, 1, 100, device=True),
        "TP groups along axis 0 need a mesh with 2 to 8 chips there; its shape is (1, 2)": Call(
            OP, 1, 128, tp_axis=0, device=True
        ),
        "core (8, 0) is outside the grid": Call(OP, 1, 128, core=(8, 0), device=True),
        "a timeout is a positive, finite number of seconds, not -1": Call(OP, 1, 128, timeout_s=-1, device=True),
        f"partial {row} BFLOAT16 TILE (1, 1, 2, 128)": call(zeros[:, :, :2]),
        f"partial {row} FLOAT32 TILE (1, 1, 3, 128)": call(dtype="float32"),
        f"partial {row} BFLOAT16 ROW_MAJOR (1, 1, 3, 128)": call(layout="ROW_MAJOR"),
        f"residual {row} BFLOAT16 TILE (1, 1, 3, 64)": call(residual=In(zeros[..., :64])),
        "norm must be bfloat16 TILE (1, 1, 1, 128), it is BFLOAT16 TILE (1, 1, 3, 128)": call(norm=In(zeros)),
        "epsilon is a positive, finite number, not 0": call(norm=In(zeros[:, :, :1]), epsilon=0),
        "partial must be on the device": Call(op, In(zeros, memory="HOST")),
        "partial has been deallocated": Call(op, In(zeros, gone=True)),
        "partial is a ttnn.Tensor, not 3": Call(op, 3),
    }
    for said, message in refusals(mock_mesh((1, 2)), calls).items():
        assert message.startswith(f"ValueError: {said}"), message


@pytest.mark.mock_mesh
@pytest.mark.parametrize("users", [1, 32])
def test_it_builds_at_llama_shapes_on_eight_chips_and_only_where_the_gate_is_shared(mock_mesh, users):
    mesh = mock_mesh((1, 8), overlays=sgdc.overlays())
    op, zeros = Make(OP, users, 4096, device=True), In(torch.zeros(1, 1, users, 4096))
    norm = In(torch.zeros(1, 1, 1, 4096))
    (found,) = run_ops(mesh, [Call(op, zeros, residual=zeros, norm=norm)])
    assert [tuple(part.shape) for part in found["normed"].values()] == [(1, 1, users, 4096)] * 8
    inside = Call(op, zeros)
    inside.inside = Make(f"{GATE}:skip_compute", priorities(2, None), users=1)
    message = refusals(mesh, {"": inside})[""]
    assert message.startswith("GatedRegionError: all_reduce (cluster_axis=1) is a cross-chip op")
