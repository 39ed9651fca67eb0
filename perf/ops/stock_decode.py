# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The bench of our flash decode against the stock op, in time and in errors.

Measured in a process with an open device; ttnn is imported there alone. A program takes from its go message until its
last core is done, under fast dispatch.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

from perf.lib.chip import Chip, timed_launch
from perf.ops.family import Family, Row, measurable

GRID = (4, 2)
WAYS = ("HiFi2", "HiFi3", "stock, as it comes", "stock, HiFi3")


def _stock_decode(device, p: SimpleNamespace) -> Row:
    """Our op at either fidelity, always with float32 sums, and the stock one as it comes (HiFi2, bfloat16 sums,
    approximate exponentials) and at equal fidelity; its float32 sums are too much for the stand-in compiler. Errors
    are against attention in float64 over what the caches hold."""
    import torch
    import ttnn

    from perf.lib.tensors import errors_of, tile, words
    from runtime_patches.profiling.timeline import Timeline
    from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode

    torch.manual_seed(0)
    q = tile(device, (1, 1, p.heads, p.head_dim))
    k, v = (tile(device, (1, p.kv_heads, p.context, p.head_dim), p.dtype) for _ in range(2))
    at = words(device, [p.context - 1])
    expected = attention(*(ttnn.to_torch(tensor).double() for tensor in (q, k, v)))

    def stock(exact: bool):
        return ttnn.transformer.scaled_dot_product_attention_decode(
            *(q, k, v),
            cur_pos_tensor=at,
            program_config=ttnn.SDPAProgramConfig(
                compute_with_storage_grid_size=ttnn.CoreCoord(*GRID),
                q_chunk_size=32,
                k_chunk_size=p.chunk,
                exp_approx_mode=not exact,
            ),
            compute_kernel_config=ttnn.WormholeComputeKernelConfig(
                math_fidelity=ttnn.MathFidelity.HiFi3 if exact else ttnn.MathFidelity.HiFi2,
                math_approx_mode=not exact,
                fp32_dest_acc_en=False,
                packer_l1_acc=False,
            ),
        )

    def ours(fidelity: str):
        config = ProgramConfig(GRID, math_fidelity=fidelity)
        return flash_decode(q, k, v, at, chunk_size=p.chunk, program_config=config)

    launches = [partial(ours, "HiFi2"), partial(ours, "HiFi3"), partial(stock, False), partial(stock, True)]
    timeline, found = Timeline(device), {}
    for way, launch in zip(WAYS, launches, strict=True):
        output, (cycles,) = timed_launch(timeline, launch)
        errors = errors_of(ttnn.to_torch(output)[..., : p.heads, :], expected)
        found[way] = measurable({"cycles": cycles, "error": errors["largest"], "relative": errors["error"]})
    for one in found.values():
        one["of_stock"] = one["cycles"] / found[WAYS[2]]["cycles"]
        one["of_exact_stock"] = one["cycles"] / found[WAYS[3]]["cycles"]
    return found


def attention(q, k, v):
    """Return attention in float64: q [1, 1, heads, d], k and v [1, kv_heads, tokens, d]: [1, 1, heads, d]."""
    heads, width = q.shape[2:]
    grouped = q.reshape(1, k.shape[1], heads // k.shape[1], width)
    weights = (grouped @ k.transpose(-1, -2) / width**0.5).softmax(dim=-1)
    return (weights @ v).reshape(1, 1, heads, width)


_STOCK_SIZES = [
    *("context=512 chunk=64", "context=1024 chunk=128", "context=1024 chunk=128 heads=8 kv_heads=2"),
    "context=1024 chunk=128 heads=16 kv_heads=4",
]
STOCK_DECODE = Family(
    about="our flash decode against the stock op on as many cores, and the errors of both",
    options={"context": 512, "chunk": 64, "heads": 4, "kv_heads": 1, "head_dim": 64, "dtype": "bfloat16"},
    choices={"dtype": ("bfloat16", "bfloat8_b")},
    points={
        "default": _STOCK_SIZES,
        "long": [
            *_STOCK_SIZES,
            "context=2048,4096 chunk=128 head_dim=128 dtype=bfloat8_b",
            "context=4096,8192 chunk=256 head_dim=128 dtype=bfloat8_b",
        ],
    },
    chip=lambda point: Chip("4x2", timed=True),
    measure=_stock_decode,
)
