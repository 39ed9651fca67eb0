# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The bench of a decode step's products of weights in the DRAM banks, against the stock program, at the shapes of Llama
3.1 8B."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from perf.lib.chip import Chip, of_roofline, timed_launch
from perf.ops.family import Family, Row, measurable

PRODUCTS = ("qkv", "wo", "gate_up", "down")


def _decode_product(device, p: SimpleNamespace) -> Row:
    """Cycles of both on one chip's columns, and the norms of their errors against float64."""
    import torch
    import ttnn

    from models.llama31_8b.config import preset
    from models.llama31_8b.tt.layouts import banked_program, in_banks, in_l1
    from models.llama31_8b.tt.mesh import TILE, MeshShape
    from models.llama31_8b.tt.modules import kernel_config
    from models.llama31_8b.tt.precision import precision_config
    from models.llama31_8b.tt.sharding import ShardedDecodeConfig, Shards
    from perf.lib.tensors import errors_of, tile
    from runtime_patches.profiling.timeline import Timeline
    from tt_kernels.decode_product.op import decode_product

    torch.manual_seed(0)
    plan = ShardedDecodeConfig.of(preset("llama-3.1-8b"), MeshShape(1, p.tp), p.users)
    dtype = getattr(precision_config("performance", 32).layer, p.product)
    product = getattr(plan, p.product)(dtype)
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
    ways = {
        "stock": lambda: ttnn.linear(
            stock_x,
            weight,
            dtype=ttnn.bfloat16,
            memory_config=memory,
            program_config=banked_program(stock),
            compute_kernel_config=kernel_config(dtype),
        ),
        "ours": lambda: decode_product(x, weight, memory),
    }
    expected = ttnn.to_torch(x).double() @ ttnn.to_torch(weight).double()
    timeline, row = Timeline(device), Row(inputs=product.inputs, outputs=product.outputs, dtype=dtype)
    for name, launch in ways.items():
        output, (cycles,) = timed_launch(timeline, launch)
        row[name] = cycles
        row[f"{name}_of_dram"] = of_roofline(product.weight_bytes, cycles)
        row[f"{name}_error"] = errors_of(ttnn.to_torch(output), expected)["error"]
    return measurable(row, "stock", "ours") | {"of_stock": row["ours"] / row["stock"]}


DECODE_PRODUCT = Family(
    about="a decode step's products of weights in the DRAM banks, against the stock program",
    options={"tp": 8, "product": "qkv", "users": 1},
    choices={"tp": (1, 2, 4, 8), "product": PRODUCTS},
    points={
        "default": ["product=qkv,wo,gate_up,down", "product=qkv users=8,16"],
        "long": ["tp=4 product=qkv,wo,gate_up,down"],
    },
    chip=lambda point: Chip("8x8", timed=True),
    measure=_decode_product,
    apart=True,
)
