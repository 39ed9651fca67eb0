# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compare both flash decodes as the sharded decode step calls them, in simulated cycles.

From queries per user, on a core each, in L1, as rotation leaves them, to a result interleaved in L1: the stock op takes
them as they are, our flash decode after `sharded_to_interleaved`. One to eight users on 4x2 cores under fast dispatch,
chunks as the model has them. Cycles of a program are from its go message until its last core is done; what is between
two programs depends on who launches them and is not counted. Ratios within one run mean something, cycles are a floor.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any

from loguru import logger

from perf.lib.data_file import add_write_option, write
from perf.lib.measuring_process import answered, measure_apart
from perf.lib.timed_chip import timed, timed_chip, timed_environment

GRID = (4, 2)
TIMEOUT_S = 7200


@dataclass(frozen=True)
class Point:
    """Users with `context` cached tokens each."""

    users: int
    context: int
    heads: int = 4
    kv_heads: int = 1
    head_dim: int = 64
    dtype: str = "bfloat16"


@dataclass(frozen=True)
class Measured:
    """Cycles of the programs: stock; move and flash_decode. difference: of the results, its norm over the stock one's.
    Errors: ValueError for what cannot have been measured."""

    stock: int
    move: int
    flash_decode: int
    difference: float

    def __post_init__(self) -> None:
        if min(self.stock, self.move, self.flash_decode) <= 0 or not 0 < self.difference < 0.1:
            raise ValueError(f"not measurable: {self}")

    @property
    def ratio(self) -> float:
        """Move and flash decode of the stock op."""
        return (self.move + self.flash_decode) / self.stock


POINTS = [
    *(Point(users, 1024) for users in (1, 4, 8)),
    Point(1, 1024, 16, 4),
    Point(1, 4096, head_dim=128, dtype="bfloat8_b"),
    # A core for each user's head, as eight users of Llama 3.1 8B have on a chip.
    *(Point(8, context, head_dim=128, dtype="bfloat8_b") for context in (2048, 4096)),
]


def measure_point(device, timeline, point: Point) -> Measured:
    import torch
    import ttnn

    from models.llama31_8b.config import LlamaConfig
    from models.llama31_8b.tt.attention_policies import FlashDecodeAttention, StockDecodeAttention
    from models.llama31_8b.tt.kv_cache import cache_block
    from models.llama31_8b.tt.mesh import TILE
    from models.llama31_8b.tt.modules import user_shards

    torch.manual_seed(0)
    hidden = point.heads * point.head_dim
    config = LlamaConfig(
        vocab_size=TILE,
        hidden_size=hidden,
        intermediate_size=hidden,
        num_hidden_layers=1,
        num_attention_heads=point.heads,
        num_key_value_heads=point.kv_heads,
        head_dim=point.head_dim,
        max_position_embeddings=point.context,
        name="bench",
    )

    def tile(*shape: int, dtype: str = "bfloat16"):
        return ttnn.from_torch(torch.randn(shape), dtype=getattr(ttnn, dtype), layout=ttnn.TILE_LAYOUT, device=device)

    q = tile(1, point.users, point.heads, point.head_dim)
    q = ttnn.to_memory_config(q, user_shards(device, point.users, TILE, point.head_dim))
    shape = (point.users, point.kv_heads, point.context, point.head_dim)
    k, v = (tile(*shape, dtype=point.dtype) for _ in range(2))
    at = ttnn.from_torch(
        torch.tensor([point.context - 1] * point.users, dtype=torch.int32), layout=ttnn.ROW_MAJOR_LAYOUT, device=device
    )
    ways = {
        "stock": (StockDecodeAttention(device, config, cache_block(point.context)), False),
        "ours": (FlashDecodeAttention(config, point.context), True),
    }
    cycles, results = {}, {}
    for name, (attend, moves) in ways.items():

        def launch(attend=attend, moves=moves):
            queries = ttnn.sharded_to_interleaved(q, ttnn.L1_MEMORY_CONFIG) if moves else q
            return attend(0, queries, k, v, at)

        output, cycles[name] = timed(timeline, launch)
        results[name] = ttnn.to_torch(output).float()[..., : point.heads, :]
        ttnn.deallocate(output)
    for tensor in (q, k, v, at):
        ttnn.deallocate(tensor)
    difference = (results["ours"] - results["stock"]).norm() / results["stock"].norm()
    (stock,), (move, ours) = cycles["stock"], cycles["ours"]
    found = Measured(stock, move, ours, difference.item())
    logger.info(f"{point}: {found}")
    return found


def run(points: list[Point]) -> list[tuple[Point, Measured]]:
    """Return each point's measurement, from a process that holds a simulated chip."""
    asked = {"points": [asdict(point) for point in points]}
    measured = measure_apart("perf.ops.bench_decode_attention", asked, timed_environment(GRID), TIMEOUT_S)
    return [(point, Measured(**found)) for point, found in zip(points, measured, strict=True)]


def _work(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with timed_chip() as (device, timeline):
        return [asdict(measure_point(device, timeline, Point(**point))) for point in points]


def report(results: list[tuple[Point, Measured]]) -> str:
    """Return a table of cycles by point, and the range of the ratios."""
    lines = [
        "| users | tokens | heads | head_dim | cache | stock | move | flash decode | both of stock | difference |",
        "|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for point, found in results:
        lines.append(
            f"| {point.users} | {point.context} | {point.heads} on {point.kv_heads} | {point.head_dim} | {point.dtype} "
            f"| {found.stock} | {found.move} | {found.flash_decode} | {found.ratio:.2f} | {found.difference:.2%} |"
        )
    ratios = [found.ratio for _, found in results]
    lines.append(f"\nMove and flash decode: {min(ratios):.2f} to {max(ratios):.2f} of the stock op's cycles.")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.ops.bench_decode_attention",
        description=__doc__.splitlines()[0],
        allow_abbrev=False,
    )
    add_write_option(parser, "--json")
    options = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    results = run(POINTS)
    if options.write:
        rows = [asdict(point) | asdict(found) | {"ratio": found.ratio} for point, found in results]
        write(options.write, parser, argv, rows)
    print(report(results))
    return 0


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
