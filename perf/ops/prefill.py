# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A prefill's products with a weight that lies in the DRAM banks as decode steps read it. Few cores do what each of all
64 does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from models.llama31_8b.tt.mesh import TILE
from perf.lib.chip import BYTES_PER_CYCLE, TILE_CYCLES, Chip
from perf.ops.family import Family, Row, Target, measurable

# By program, whether the cores of a row share rows and those of a column columns; else all share all rows.
PROGRAMS = {"banked_product": False, "minimal_matmul": True}


def _product(device, p: SimpleNamespace) -> Row:
    """The programs that the model takes."""
    import torch
    import ttnn

    from models.llama31_8b.tt import layouts, modules
    from models.llama31_8b.tt.precision import FIDELITY, TILE_BYTES
    from models.llama31_8b.tt.sharding import MatmulConfig, Shards
    from perf.lib.tensors import errors_of, tile
    from runtime_patches.profiling.timeline import Timeline
    from tt_kernels.banked_product.op import banked_product

    torch.manual_seed(0)
    grid, memory = device.compute_with_storage_grid_size(), ttnn.DRAM_MEMORY_CONFIG
    nowhere = Shards(1, TILE)
    shape = MatmulConfig("product", p.inputs, p.outputs, p.dtype, nowhere, nowhere, 1)
    rows = tile(device, (1, 1, p.rows, p.inputs))
    weight = tile(device, torch.randn(1, 1, p.inputs, p.outputs) / p.inputs**0.5, p.dtype, layouts.in_banks(shape))

    launches: dict[str, Callable[[], Any]] = {
        "banked_product": lambda: banked_product(rows, weight, memory),
        "minimal_matmul": lambda: modules.minimal_matmul(rows, weight, memory),
    }
    timeline = Timeline(device)
    timeline.start()
    result = launches[p.program]()
    cycles = sum(program.end - program.start for program in timeline.stop()[0])
    expected = ttnn.to_torch(rows).double() @ ttnn.to_torch(weight).double()
    busy = p.rows * p.inputs * p.outputs // TILE**3 * TILE_CYCLES[FIDELITY[p.dtype]] / (grid.x * grid.y)
    read = p.inputs * p.outputs // TILE**2 * TILE_BYTES[p.dtype] / BYTES_PER_CYCLE
    high, wide = (8 // grid.y, 8 // grid.x) if PROGRAMS[p.program] else (1, 64 // grid.x // grid.y)
    return measurable({"cycles": cycles}) | {
        "chip_rows": high * p.rows,
        "chip_outputs": wide * p.outputs,
        "of_peak": busy / cycles,
        "of_dram": wide * read / cycles,
        "error": errors_of(ttnn.to_torch(result), expected)["error"],
    }


def _check(p: SimpleNamespace) -> None:
    for name in ("rows", "inputs", "outputs"):
        if getattr(p, name) % TILE or getattr(p, name) < 2 * TILE:
            raise ValueError(f"{name} must be a multiple of {TILE} above {TILE}, got {getattr(p, name)}")


def _of_minimal(row: Row, earlier: Sequence[Row]) -> Row:
    """Hold a product against that of minimal_matmul of the same rows and weight on a whole chip."""
    same = [
        r for r in earlier if all(r[name] == row[name] for name in ("chip_rows", "inputs", "chip_outputs", "dtype"))
    ]
    stock = next((r["cycles"] for r in same if r["program"] == "minimal_matmul"), None)
    return {"of_minimal": row["cycles"] / stock if stock else None}


# Parts of Llama 3.1 8B's products over some of the inner dimension. Four by four cores have half of a chip's rows and
# of its columns where cores of a row share rows; where all cores share all rows, a quarter of the columns.
PRODUCT = Family(
    about="a prefill's products by program: our own, and the stock one over the same weight",
    options={
        "rows": 256,
        "inputs": 512,
        "outputs": 3072,
        "dtype": "bfloat8_b",
        "cores": "4x4",
        "program": "minimal_matmul",
    },
    choices={"dtype": ("bfloat8_b", "bfloat4_b"), "program": tuple(PROGRAMS), "cores": ("4x4", "8x8")},
    points={
        "default": [
            "rows=64 program=minimal_matmul",
            "rows=128 outputs=1536 program=banked_product",
            "rows=128 inputs=1024 outputs=1536 program=banked_product",
            "rows=128 inputs=512,1024 outputs=512 program=banked_product",
            "rows=128 outputs=3584 dtype=bfloat4_b program=banked_product",
            "rows=256 program=minimal_matmul",
            "rows=512 outputs=1536 program=banked_product",
        ]
    },
    chip=lambda point: Chip(point.cores, timed=True),
    measure=_product,
    check=_check,
    complete=_of_minimal,
    targets=[
        Target("of_minimal", 0.6, lambda row: (row["program"], row["chip_rows"]) == ("banked_product", 128), "128 rows")
    ],
    apart=True,
)
