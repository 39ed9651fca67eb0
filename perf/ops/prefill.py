# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Prefill's products: many rows with a weight that lies in the DRAM banks as decode steps read it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from models.llama31_8b.tt.mesh import TILE
from perf.lib.chip import BYTES_PER_CYCLE, Chip
from perf.ops.family import Family, Row, Target, measurable

# Cycles of a core's matrix unit for the product of two tiles, by the passes of the fidelity.
TILE_CYCLES = {"LoFi": 16, "HiFi2": 32, "HiFi3": 48}
PROGRAMS = ("model", "multicast", "copied")


def _product(device, p: SimpleNamespace) -> Row:
    """The model's own product; a 2D multicast program over the same weight; and ttnn's choice for an interleaved copy
    of it, with the copy."""
    import torch
    import ttnn

    from models.llama31_8b.tt import layouts, modules
    from models.llama31_8b.tt.precision import FIDELITY, TILE_BYTES
    from models.llama31_8b.tt.sharding import MatmulConfig, Shards
    from perf.lib.tensors import errors_of, tile
    from runtime_patches.profiling.timeline import Timeline

    torch.manual_seed(0)
    grid = device.compute_with_storage_grid_size()
    nowhere = Shards(1, TILE)
    shape = MatmulConfig("product", p.inputs, p.outputs, p.dtype, nowhere, nowhere, 1)
    rows = tile(device, (1, 1, p.rows, p.inputs))
    weight = tile(device, torch.randn(1, 1, p.inputs, p.outputs) / p.inputs**0.5, p.dtype, layouts.in_banks(shape))
    common: dict[str, Any] = {
        "dtype": ttnn.bfloat16,
        "memory_config": ttnn.DRAM_MEMORY_CONFIG,
        "compute_kernel_config": modules.kernel_config(p.dtype),
    }
    timeline = Timeline(device)
    timeline.start()
    if p.program == "model":
        result = modules.linear_from_banks(rows, weight, ttnn.DRAM_MEMORY_CONFIG)
    elif p.program == "copied":
        result = ttnn.linear(rows, ttnn.to_memory_config(weight, ttnn.DRAM_MEMORY_CONFIG), **common)
    else:
        high, wide = -(-p.rows // TILE // grid.y), -(-p.outputs // TILE // grid.x)
        program = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
            compute_with_storage_grid_size=(grid.x, grid.y),
            in0_block_w=4,
            out_subblock_h=1,
            out_subblock_w=max(n for n in range(1, 9) if wide % n == 0),
            per_core_M=high,
            per_core_N=wide,
            transpose_mcast=False,
            fused_activation=None,
            fuse_batch=False,
        )
        result = ttnn.linear(rows, weight, program_config=program, **common)
    cycles = sum(program.end - program.start for program in timeline.stop()[0])
    expected = ttnn.to_torch(rows).double() @ ttnn.to_torch(weight).double()
    busy = p.rows * p.inputs * p.outputs // TILE**3 * TILE_CYCLES[FIDELITY[p.dtype]] / (grid.x * grid.y)
    read = p.inputs * p.outputs // TILE**2 * TILE_BYTES[p.dtype] / BYTES_PER_CYCLE
    return measurable({"cycles": cycles}) | {
        "of_peak": busy / cycles,
        "of_dram": read / cycles,
        "error": errors_of(ttnn.to_torch(result), expected)["error"],
    }


def _check(p: SimpleNamespace) -> None:
    for name in ("rows", "inputs", "outputs"):
        if getattr(p, name) % TILE or getattr(p, name) < 2 * TILE:
            raise ValueError(f"{name} must be a multiple of {TILE} above {TILE}, got {getattr(p, name)}")


def _of_copied(row: Row, earlier: Sequence[Row]) -> Row:
    """Hold a product against that over a copy of the weight."""
    same = [r for r in earlier if all(r[name] == row[name] for name in ("rows", "inputs", "outputs", "dtype", "cores"))]
    copied = next((r["cycles"] for r in same if r["program"] == "copied"), None)
    return {"of_copied": row["cycles"] / copied if copied else None}


# The part of Llama 3.1 8B's products that a quarter of a chip's cores computes, over an eighth of the inner dimension.
PRODUCT = Family(
    about="a prefill's products by program: the model's, a 2D multicast, ttnn's choice over a copy of the weight",
    options={
        "rows": 256,
        "inputs": 512,
        "outputs": 3072,
        "dtype": "bfloat8_b",
        "cores": "4x4",
        "program": "model",
    },
    choices={"dtype": ("bfloat8_b", "bfloat4_b"), "program": PROGRAMS, "cores": ("4x4", "8x8")},
    points={"default": ["program=copied,multicast,model", "rows=64 program=copied,model"]},
    chip=lambda point: Chip(point.cores, timed=True),
    measure=_product,
    check=_check,
    complete=_of_copied,
    targets=[Target("of_copied", 0.6, lambda row: row["program"] == "model", "the model's products")],
    apart=True,
)
