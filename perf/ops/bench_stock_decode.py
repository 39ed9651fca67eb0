# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compare our flash decode with the stock op, in simulated cycles and in error.

Both on the same cores with chunks of as many keys; ours at each math fidelity, always with float32 sums. The stock
`scaled_dot_product_attention_decode` as it comes (HiFi2, bfloat16 sums, approximate exponentials) and at equal fidelity
(HiFi3, exact exponentials; its float32 sums are too much for the stand-in compiler). Errors are against attention in
float64 over what the caches hold.

Cycles of the program on the chip, from its go message under fast dispatch until its last core is done. The simulator's
cost model is deterministic and a floor: ratios within one run mean something, cycles do not. It charges the packer's
issue only, so what an op packs costs nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from loguru import logger

from perf.lib.data_file import add_write_option, write
from perf.lib.measuring_process import answered, measure_apart
from perf.lib.timed_chip import timed, timed_chip, timed_environment

GRID = (4, 2)
FIDELITIES = ("HiFi2", "HiFi3")
STOCK, STOCK_EXACT = "stock, as it comes", "stock, HiFi3"
EQUAL_FIDELITY_TARGET, DEFAULT_TARGET = 0.9, 1.0
TIMEOUT_S = 7200


@dataclass(frozen=True)
class Point:
    """One user with `context` cached tokens, and how many of them are taken at once."""

    context: int
    chunk: int
    heads: int = 4
    kv_heads: int = 1
    head_dim: int = 64
    dtype: str = "bfloat16"

    def __str__(self) -> str:
        return (
            f"{self.context} tokens, {self.heads} heads on {self.kv_heads} of {self.head_dim}, {self.dtype}, "
            f"chunks of {self.chunk}"
        )


@dataclass(frozen=True)
class Measured:
    """cycles: of the program. error, relative: the largest absolute error, and the norm of the error over that of the
    result. Errors: ValueError for what cannot have been measured."""

    cycles: int
    error: float
    relative: float

    def __post_init__(self) -> None:
        if self.cycles <= 0 or not 0 < self.error < 1 or not 0 < self.relative < 1:
            raise ValueError(f"not measurable: {self}")


POINTS = [Point(512, 64), Point(1024, 128), Point(1024, 128, 8, 2), Point(1024, 128, 16, 4)]
LONG_POINTS = [
    *POINTS,
    Point(2048, 128, head_dim=128, dtype="bfloat8_b"),
    Point(4096, 128, head_dim=128, dtype="bfloat8_b"),
    Point(4096, 256, head_dim=128, dtype="bfloat8_b"),
    Point(8192, 256, head_dim=128, dtype="bfloat8_b"),
]


def measure_point(device, timeline, point: Point) -> dict[str, Measured]:
    """Measure each way, in the order of the table."""
    import torch
    import ttnn

    from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode

    torch.manual_seed(0)
    dtype = getattr(ttnn, point.dtype)

    def tile(values, kind=ttnn.bfloat16):
        return ttnn.from_torch(values, dtype=kind, layout=ttnn.TILE_LAYOUT, device=device)

    q = tile(torch.randn(1, 1, point.heads, point.head_dim))
    k, v = (tile(torch.randn(1, point.kv_heads, point.context, point.head_dim), dtype) for _ in range(2))
    at = ttnn.from_torch(
        torch.tensor([point.context - 1], dtype=torch.int32), layout=ttnn.ROW_MAJOR_LAYOUT, device=device
    )
    expected = _attention(*(ttnn.to_torch(tensor).double() for tensor in (q, k, v)))

    def stock(exact: bool):
        return ttnn.transformer.scaled_dot_product_attention_decode(
            q,
            k,
            v,
            cur_pos_tensor=at,
            program_config=ttnn.SDPAProgramConfig(
                compute_with_storage_grid_size=ttnn.CoreCoord(*GRID),
                q_chunk_size=32,
                k_chunk_size=point.chunk,
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
        return flash_decode(q, k, v, at, chunk_size=point.chunk, program_config=config)

    ways: dict[str, Callable[[], Any]] = {
        **{fidelity: partial(ours, fidelity) for fidelity in FIDELITIES},
        STOCK: partial(stock, False),
        STOCK_EXACT: partial(stock, True),
    }
    found = {}
    for name, launch in ways.items():
        output, (cycles,) = timed(timeline, launch)
        error = ttnn.to_torch(output).double()[..., : point.heads, :] - expected
        found[name] = Measured(cycles, error.abs().max().item(), (error.norm() / expected.norm()).item())
        logger.info(f"{point}: {name}: {found[name]}")
    return found


def _attention(q, k, v):
    """Return attention in float64: q [1, 1, heads, d], k and v [1, kv_heads, tokens, d]: [1, 1, heads, d]."""
    heads, width = q.shape[2:]
    grouped = q.reshape(1, k.shape[1], heads // k.shape[1], width)
    weights = (grouped @ k.transpose(-1, -2) / width**0.5).softmax(dim=-1)
    return (weights @ v).reshape(1, 1, heads, width)


def run(points: list[Point]) -> list[tuple[Point, dict[str, Measured]]]:
    """Return each point's measurements, from a process that holds a simulated chip."""
    asked = {"points": [asdict(point) for point in points]}
    measured = measure_apart("perf.ops.bench_stock_decode", asked, timed_environment(GRID), TIMEOUT_S)
    return [
        (point, {name: Measured(**values) for name, values in found.items()})
        for point, found in zip(points, measured, strict=True)
    ]


def _work(points: list[dict]) -> list[dict]:
    with timed_chip() as (device, timeline):
        return [
            {name: asdict(found) for name, found in measure_point(device, timeline, Point(**point)).items()}
            for point in points
        ]


def table_rows(results: list[tuple[Point, dict[str, Measured]]]) -> list[dict]:
    """Return the rows of a data file: shape, and by way cycles, errors and ratios to both calls of the stock op."""
    return [
        asdict(point)
        | {
            name: asdict(one)
            | {"of_stock": one.cycles / found[STOCK].cycles, "of_exact_stock": one.cycles / found[STOCK_EXACT].cycles}
            for name, one in found.items()
        }
        for point, found in results
    ]


def report(results: list[tuple[Point, dict[str, Measured]]], default: str) -> str:
    """Return a table of cycles, ratios and errors by point, and how the ratios stand to the targets. default: the
    fidelity that the op takes if none is asked for."""
    lines = [
        "| tokens | heads | head_dim | cache | chunk | way | cycles | of stock as it comes | of stock at HiFi3 "
        "| largest error | error of the norm |",
        "|---:|---:|---:|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for point, found in results:
        heads = f"{point.heads} on {point.kv_heads}"
        shape = f"{point.context} | {heads} | {point.head_dim} | {point.dtype} | {point.chunk}"
        for name, measured in found.items():
            ratios = (measured.cycles / found[stock].cycles for stock in (STOCK, STOCK_EXACT))
            lines.append(
                f"| {shape} | {name}{' (default)' if name == default else ''} | {measured.cycles} | "
                + " | ".join(f"{ratio:.2f}" for ratio in ratios)
                + f" | {measured.error:.5f} | {measured.relative:.2%} |"
            )
    for text, way, stock, target in (
        ("at equal fidelity", "HiFi3", STOCK_EXACT, EQUAL_FIDELITY_TARGET),
        ("by default", default, STOCK, DEFAULT_TARGET),
    ):
        worst = max(found[way].cycles / found[stock].cycles for _, found in results)
        lines.append(
            f"\nCycles {text} ({way} against {stock}): at most {worst:.2f} (target {target}: "
            f"{'met' if worst <= target else 'missed'})."
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    from tt_kernels.speculative_flash_decode.launch import ProgramConfig

    parser = argparse.ArgumentParser(prog="python -m perf.ops.bench_stock_decode", description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="also 2048 to 8192 tokens of head_dim 128, bfloat8_b")
    add_write_option(parser, "--json")
    options = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    results = run(LONG_POINTS if options.long else POINTS)
    if options.write:
        write(options.write, parser, argv, table_rows(results))
    print(report(results, ProgramConfig().math_fidelity))
    return 0


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
