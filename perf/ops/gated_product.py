# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The bench of the gated product of a decode step against the stock op, at the shards of Llama 3.1 8B."""

from __future__ import annotations

from types import SimpleNamespace

from perf.lib.chip import Chip, timed_launch
from perf.ops.family import Family, Row, measurable

GRIDS = {1: "8x8", 2: "8x7", 4: "8x7", 8: "8x7"}  # the cores that hold shards, by tp
SCALE = 4.0  # of gates, so that sigmoids come close to 0 and 1


def _gated_product(device, p: SimpleNamespace) -> Row:
    """Cycles of both on one chip's columns, and their errors against float64: the largest in units of the result's
    last place, and the norm's."""
    import torch
    import ttnn

    from models.llama31_8b.config import preset
    from models.llama31_8b.tt.layouts import in_l1
    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.sharding import ShardedDecodeConfig, Shards
    from perf.lib.tensors import tile
    from runtime_patches.profiling.timeline import Timeline
    from tt_kernels.gated_product.op import gated_product
    from tt_kernels.gated_product.reference import gated_product_reference

    torch.manual_seed(0)
    shards = ShardedDecodeConfig.of(preset("llama-3.1-8b"), MeshShape(1, p.tp), p.users).hidden
    memory, columns = in_l1(device, shards), shards.width
    parts = [scale * torch.randn(1, 1, p.users, columns) for scale in (SCALE, 1.0)]
    gate, up = (tile(device, part, memory=memory) for part in parts)
    both = torch.stack([part.unflatten(-1, (-1, shards.columns)) for part in parts], -2).flatten(-3)
    x = tile(device, both, memory=in_l1(device, Shards(shards.cores, 2 * shards.columns)))
    expected = gated_product_reference(both.bfloat16(), shards.columns)
    ways = {
        "stock": lambda: ttnn.mul(
            gate, up, input_tensor_a_activations=[ttnn.UnaryOpType.SILU], memory_config=gate.memory_config()
        ),
        "ours": lambda: gated_product(x, shards.columns),
    }
    timeline, row = Timeline(device), Row(cores=shards.cores, tiles=shards.tiles)
    for name, launch in ways.items():
        output, (cycles,) = timed_launch(timeline, launch)
        difference = ttnn.to_torch(output).double() - expected
        last_place = 2.0 ** (expected.abs().log2().floor() - 7)
        row[name] = cycles
        row[f"{name}_places"] = (difference.abs() / last_place).max().item()
        row[f"{name}_error"] = (difference.norm() / expected.norm()).item()
    return measurable(row) | {"of_stock": row["ours"] / row["stock"]}


GATED_PRODUCT = Family(
    about="silu(gate) * up of a decode step on the rows that hold users, against the stock op on all",
    options={"tp": 1, "users": 1},
    choices={"tp": (1, 2, 4, 8)},
    points={"default": ["tp=8 users=1,8,32"], "long": ["tp=8 users=1,8,32", "tp=1,2"]},
    chip=lambda point: Chip(GRIDS[point.tp], timed=True),
    measure=_gated_product,
)
