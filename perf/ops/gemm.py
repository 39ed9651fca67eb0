# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The simulator's matrix unit beside boards: products of tt-metal's GEMM report, by its program, on the first of its
eight rows of cores, each of which computes its whole block."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from models.llama31_8b.tt.mesh import TILE
from perf.lib.chip import TILE_CYCLES, Chip
from perf.ops.family import Family, Row, measurable
from perf.projection.published import read_rows

SIDE = 8  # columns and rows of the report's cores


def _published(p: SimpleNamespace) -> dict[str, Any]:
    """Return the report's row of a product. Raises ValueError where it has none."""
    for row in read_rows("published_gemm.csv"):
        if (row["size"], row["dtype"], row["fidelity"]) == (p.size, p.dtype, p.fidelity):
            return row
    raise ValueError(f"the GEMM report has no product of size {p.size} in {p.dtype} at {p.fidelity}")


def _gemm(device, p: SimpleNamespace) -> Row:
    """A core's block of the rows is in its L1, as is that of the result; the other operand is read from the DRAM."""
    import torch
    import ttnn

    from perf.lib.tensors import errors_of, tile
    from runtime_patches.profiling.timeline import Timeline

    torch.manual_seed(0)
    rows, block = p.size // SIDE, p.size // SIDE // TILE
    shards = ttnn.create_sharded_memory_config(
        (1, 1, rows, p.size), ttnn.CoreGrid(x=SIDE, y=1), ttnn.ShardStrategy.BLOCK, ttnn.ShardOrientation.ROW_MAJOR
    )
    left, right = tile(device, (1, 1, rows, p.size), p.dtype, shards), tile(device, (1, 1, p.size, p.size), p.dtype)
    program = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(SIDE, 1),
        in0_block_w=block,
        out_subblock_h=8 // block,
        out_subblock_w=block,
        per_core_M=block,
        per_core_N=block,
        transpose_mcast=False,
        fused_activation=None,
    )
    config = ttnn.WormholeComputeKernelConfig(
        math_fidelity=getattr(ttnn.MathFidelity, p.fidelity),
        math_approx_mode=True,
        fp32_dest_acc_en=False,
        packer_l1_acc=True,
    )
    timeline = Timeline(device)
    timeline.start()
    result = ttnn.matmul(
        left,
        right,
        program_config=program,
        memory_config=ttnn.L1_BLOCK_SHARDED_MEMORY_CONFIG,
        dtype=getattr(ttnn, p.dtype),
        compute_kernel_config=config,
    )
    (span,) = timeline.stop()[0]
    cycles = span.end - span.start
    expected = ttnn.to_torch(left).double() @ ttnn.to_torch(right).double()
    products = block * block * p.size // TILE  # of tiles, on a core
    known = _published(p)
    row = measurable({"cycles": cycles, "of_peak": products * TILE_CYCLES[p.fidelity] / cycles})
    return row | {
        "cycles_per_tile": cycles / products,
        "tflops_of_core": 2 * products * TILE**3 / cycles / 1000,
        "published_of_peak": known["of_peak"],
        "published_tflops_of_core": known["tflops"] / SIDE**2,
        "of_published_cycles": known["of_peak"] / row["of_peak"],
        "error": errors_of(ttnn.to_torch(result), expected)["error"],
    }


GEMM = Family(
    about="the matrix unit: products of tt-metal's GEMM report beside its figures of boards",
    options={"size": 1024, "dtype": "bfloat16", "fidelity": "HiFi2"},
    choices={"size": (1024, 2048)},
    points={
        "default": [
            f"size=1024 dtype={formats} fidelity={fidelity}"
            for formats, fidelity in (("bfloat16", "HiFi2,HiFi4"), ("bfloat8_b", "HiFi2,LoFi"), ("bfloat4_b", "LoFi"))
        ]
        + ["size=2048 dtype=bfloat8_b fidelity=HiFi2"]
    },
    chip=lambda point: Chip(f"{SIDE}x1", timed=True),
    measure=_gemm,
    check=_published,
    apart=True,
)
