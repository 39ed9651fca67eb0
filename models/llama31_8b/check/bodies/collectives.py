# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives of a TP group over the stock fabric, as the model calls them, against torch."""

from __future__ import annotations

import torch

from ..context import Context
from ..findings import Check

ROWS, COLUMNS = 32, 128  # of a chip, in bfloat16; the columns of a sum stay whole tiles on each of four chips
MAX_RELATIVE = 2.0**-7  # of the largest sum: bfloat16's step, once for each chip that adds


def collectives(context: Context) -> list[Check]:
    """Gather columns, sum into parts, and gather the sums (all-reduce), on every TP group of the mesh at once."""
    import ttnn

    from models.llama31_8b.tt.layouts import gather, reduce
    from models.llama31_8b.tt.mesh import MeshShape

    mesh_shape = MeshShape(*context.device.shape)
    generator = torch.Generator().manual_seed(2)
    values = torch.randn(mesh_shape.tp, 1, ROWS, COLUMNS, generator=generator).bfloat16()
    on_chips = mesh_shape.put(context.device, values, "bfloat16", dim=0)
    summed = reduce(on_chips, mesh_shape)
    found = {"gather": gather(on_chips, mesh_shape), "sum": summed, "sum, gathered": gather(summed, mesh_shape)}
    whole = values.double().sum(dim=0, keepdim=True)
    parts = whole.chunk(mesh_shape.tp, dim=-1)
    expected = {
        "gather": [torch.cat(list(values), dim=-1)[None].double()] * mesh_shape.tp,
        "sum": list(parts),
        "sum, gathered": [whole] * mesh_shape.tp,
    }
    checks = []
    for name, tensor in found.items():
        chips = [ttnn.to_torch(part).double() for part in ttnn.get_device_tensors(tensor)]
        errors = [float((chip - expected[name][index % mesh_shape.tp]).abs().max()) for index, chip in enumerate(chips)]
        limit = 0.0 if name == "gather" else MAX_RELATIVE * float(whole.abs().max())
        shown = f"largest errors by chip: {[round(error, 5) for error in errors]}"
        checks.append(Check(name, shown, f"at most {limit:.5f}", max(errors) <= limit))
    return checks
