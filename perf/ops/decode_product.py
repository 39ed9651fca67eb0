# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The bench of a decode step's products of weights in the DRAM banks, against the stock program, at the shapes of Llama
3.1 8B. The product "heads" is wo from attention's result on: stock ops join its heads before."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from perf.lib.chip import Chip, of_roofline, timed_launch
from perf.ops.family import Family, Row, measurable

HEADS = "heads"
PRODUCTS = ("qkv", "wo", "gate_up", "down", HEADS)


def _decode_product(device, p: SimpleNamespace) -> Row:
    """Cycles of both on one chip's columns, and the norms of their errors against float64."""
    import torch
    import ttnn

    from models.llama31_8b.config import preset
    from models.llama31_8b.tt.layouts import banked_program, in_banks, in_l1, join_heads
    from models.llama31_8b.tt.mesh import TILE, MeshShape
    from models.llama31_8b.tt.modules import kernel_config
    from models.llama31_8b.tt.precision import precision_config
    from models.llama31_8b.tt.sharding import ShardedDecodeConfig, Shards
    from perf.lib.tensors import errors_of, tile
    from runtime_patches.profiling.timeline import Timeline
    from tt_kernels.decode_product.op import decode_product

    torch.manual_seed(0)
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
        "stock": lambda: ttnn.linear(
            stock_rows(),
            weight,
            dtype=ttnn.bfloat16,
            memory_config=memory,
            program_config=banked_program(stock),
            compute_kernel_config=kernel_config(dtype),
        ),
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


DECODE_PRODUCT = Family(
    about="a decode step's products of weights in the DRAM banks, against the stock program",
    options={"tp": 8, "product": "qkv", "users": 1},
    choices={"tp": (1, 2, 4, 8), "product": PRODUCTS},
    points={
        "default": ["product=qkv,wo,gate_up,down", "product=qkv users=8,16", "product=heads users=1,4,8"],
        "long": ["tp=4 product=qkv,wo,gate_up,down"],
    },
    chip=lambda point: Chip("8x8", timed=True),
    measure=_decode_product,
    apart=True,
)
