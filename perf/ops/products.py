# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Benches of products: a decode step's and a prefill's, with weights in the DRAM banks as decode steps read them, and
those of tt-metal's GEMM report, which say how near the simulator's matrix unit is to boards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import ttnn

from models.llama31_8b.config import preset
from models.llama31_8b.tt import modules
from models.llama31_8b.tt.layouts import banked_program, in_banks, in_l1, join_heads
from models.llama31_8b.tt.mesh import TILE, MeshShape
from models.llama31_8b.tt.precision import FIDELITY, TILE_BYTES, precision_config
from models.llama31_8b.tt.sharding import MatmulConfig, ShardedDecodeConfig, Shards
from perf.lib.chip import BYTES_PER_CYCLE, TILE_CYCLES, of_roofline, timed_launch, timed_once
from perf.lib.data_file import Row
from perf.lib.tensors import errors_of, tile
from perf.ops.families import HEADS, PROGRAMS, SIDE, measurable, published_gemm
from runtime_patches.profiling.timeline import Timeline
from tt_kernels.banked_product.op import banked_product
from tt_kernels.decode_product.op import decode_product


def banked_decode_product(device, p: SimpleNamespace) -> Row:
    """Cycles of both on one chip's columns, and the norms of their errors against float64."""
    name = "wo" if p.product == HEADS else p.product
    plan = ShardedDecodeConfig.of(preset("llama-3.1-8b"), MeshShape(1, p.tp), p.users)
    dtype = getattr(precision_config("performance", 32).layer, name)
    product = getattr(plan, name)(dtype)
    memory = in_l1(device, product.result)
    rows = torch.randn(1, 1, p.users, product.inputs)
    x = tile(device, rows, memory=in_l1(device, product.source))
    weight = tile(device, (1, 1, product.inputs, product.outputs), dtype, in_banks(product))
    tiles = product.inputs // TILE
    # The stock program multicasts a core's rows at once: as few cores as give each four tiles or more.
    cores = max(n for n in (1, 2, 4, 8, 16, 24, 32) if tiles % n == 0 and tiles >= 4 * n)
    block = max(n for n in range(1, 9) if tiles // cores % n == 0)
    stock = replace(product, source=Shards(cores, product.inputs // cores), block=block)
    stock_x = tile(device, rows, memory=in_l1(device, stock.source))
    ours, stock_rows = x, lambda: stock_x
    if p.product == HEADS:
        count, columns = plan.merged.cores, plan.merged.columns
        ours = tile(device, rows.reshape(1, p.users, count, columns), memory=ttnn.L1_MEMORY_CONFIG)
        stock, stock_rows = replace(product, block=columns // TILE), lambda: join_heads(ours, count)
    ways = {
        "stock": lambda: _linear(stock_rows(), weight, memory, banked_program(stock)),
        "ours": lambda: decode_product(ours, weight, memory),
    }
    expected = ttnn.to_torch(x).double() @ ttnn.to_torch(weight).double()
    timeline, row = Timeline(device), Row(inputs=product.inputs, outputs=product.outputs, dtype=dtype)
    for way, launch in ways.items():
        output, cycles = timed_launch(timeline, launch)
        row[way] = sum(cycles)
        row[f"{way}_of_dram"] = of_roofline(product.weight_bytes, row[way])
        row[f"{way}_error"] = errors_of(ttnn.to_torch(output)[:, :, : p.users], expected)["error"]
    return measurable(row, "stock", "ours") | {"of_stock": row["ours"] / row["stock"]}


def prefill_product(device, p: SimpleNamespace) -> Row:
    """The model's own programs, a 2D multicast program over the same weight, and ttnn's choice for an interleaved
    weight, alone and with the copy that makes it. x: the format of the rows."""
    grid, memory = device.compute_with_storage_grid_size(), ttnn.DRAM_MEMORY_CONFIG
    nowhere = Shards(1, TILE)
    shape = MatmulConfig("product", p.inputs, p.outputs, p.dtype, nowhere, nowhere, 1)
    rows = tile(device, (1, 1, p.rows, p.inputs), p.x)
    where = memory if p.program == "interleaved" else in_banks(shape)
    weight = tile(device, torch.randn(1, 1, p.inputs, p.outputs) / p.inputs**0.5, p.dtype, where)

    def multicast() -> Any:
        high, wide = -(-p.rows // TILE // grid.y), -(-p.outputs // TILE // grid.x)
        program = multicast_program((grid.x, grid.y), high, wide, depth=4, fuse_batch=False)
        return _linear(rows, weight, memory, program)

    launches: dict[str, Callable[[], Any]] = {
        "banked_product": lambda: banked_product(rows, weight, memory),
        "minimal_matmul": lambda: modules.minimal_matmul(rows, weight, memory),
        "multicast": multicast,
        "copied": lambda: modules.linear(rows, ttnn.to_memory_config(weight, memory), memory),
        "interleaved": lambda: modules.linear(rows, weight, memory),
    }
    result, cycles = timed_once(device, launches[p.program])
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


def _linear(x, weight, memory, program) -> Any:
    config = modules.kernel_config(modules.dtype_name(weight))
    how = {"dtype": ttnn.bfloat16, "memory_config": memory, "compute_kernel_config": config}
    return ttnn.linear(x, weight, program_config=program, **how)


def multicast_program(
    grid: tuple[int, int], high: int, wide: int, *, depth: int, subblock_rows: int = 1, **more: bool
) -> Any:
    """Return ttnn's 2D multicast program. high, wide: tiles of a core's result, of which up to eight columns and
    `subblock_rows` are made at once. depth: tiles of the inner dimension that are multicast at once."""
    return ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=grid,
        in0_block_w=depth,
        out_subblock_h=subblock_rows,
        out_subblock_w=max(n for n in range(1, 9) if wide % n == 0),
        per_core_M=high,
        per_core_N=wide,
        transpose_mcast=False,
        fused_activation=None,
        **more,
    )


def gemm(device, p: SimpleNamespace) -> Row:
    """A core's block of the rows is in its L1, as is that of the result; the other operand is read from the DRAM."""
    rows, block = p.size // SIDE, p.size // SIDE // TILE
    shards = ttnn.create_sharded_memory_config(
        (1, 1, rows, p.size), ttnn.CoreGrid(x=SIDE, y=1), ttnn.ShardStrategy.BLOCK, ttnn.ShardOrientation.ROW_MAJOR
    )
    left, right = tile(device, (1, 1, rows, p.size), p.dtype, shards), tile(device, (1, 1, p.size, p.size), p.dtype)
    program = multicast_program((SIDE, 1), block, block, depth=block, subblock_rows=8 // block)
    config = ttnn.WormholeComputeKernelConfig(
        math_fidelity=getattr(ttnn.MathFidelity, p.fidelity),
        math_approx_mode=True,
        fp32_dest_acc_en=False,
        packer_l1_acc=True,
    )
    product = partial(
        ttnn.matmul,
        left,
        right,
        program_config=program,
        memory_config=ttnn.L1_BLOCK_SHARDED_MEMORY_CONFIG,
        dtype=getattr(ttnn, p.dtype),
        compute_kernel_config=config,
    )
    result, cycles = timed_once(device, product)
    expected = ttnn.to_torch(left).double() @ ttnn.to_torch(right).double()
    products = block * block * p.size // TILE  # of tiles, on a core
    known = published_gemm(p)
    row = measurable({"cycles": cycles, "of_peak": products * TILE_CYCLES[p.fidelity] / cycles})
    return row | {
        "cycles_per_tile": cycles / products,
        "tflops_of_core": 2 * products * TILE**3 / cycles / 1000,
        "published_of_peak": known["of_peak"],
        "published_tflops_of_core": known["tflops"] / SIDE**2,
        "of_published_cycles": known["of_peak"] / row["of_peak"],
        "error": errors_of(ttnn.to_torch(result), expected)["error"],
    }
