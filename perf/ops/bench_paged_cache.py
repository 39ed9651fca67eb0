# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure what a page table costs attention, in simulated cycles.

The same op over a plain cache and over pages in a random order: one KV head of Llama 3.1 8B (4 query heads, head_dim
128, bfloat8_b). All cores start together.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, dataclass
from functools import partial

from perf.lib.counted_points import cycles_of, measure_points, measure_points_apart
from perf.lib.data_file import add_write_option, write
from perf.lib.measuring_process import answered

GRID = "4x2"
CHUNK, NODES = 128, 16
TARGET = 1.03
TIMEOUT_S = 3600


@dataclass(frozen=True)
class Point:
    """op: decode, or tree for tree attention of NODES nodes. context: tokens that the cache holds. block: tokens of a
    page. workers: cores that share the head."""

    op: str
    context: int
    block: int
    workers: int = 7


@dataclass(frozen=True)
class Cycles:
    plain: int
    paged: int

    @property
    def ratio(self) -> float:
        return self.paged / self.plain


POINTS = [
    *(Point("decode", context, block) for context in (1024, 4096) for block in (32, 64, 128)),
    Point("decode", 1024, 64, workers=1),
    *(Point("tree", context, 64) for context in (1024, 4096)),
]


def measure_point(device, point: Point) -> Cycles:
    """Run both at one shape. What the host compiles meanwhile costs no cycles of the chip."""
    import torch
    import ttnn

    from tt_kernels.speculative_flash_decode.op import ProgramConfig as DecodeConfig
    from tt_kernels.speculative_flash_decode.op import flash_decode
    from tt_kernels.tree_attention.op import ProgramConfig, tree_attention

    torch.manual_seed(0)

    def tile(tensor, dtype=ttnn.bfloat8_b):
        return ttnn.from_torch(tensor, dtype=dtype, layout=ttnn.TILE_LAYOUT, device=device)

    def words(values):
        values = torch.as_tensor(values, dtype=torch.int32)
        return ttnn.from_torch(values, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)

    columns = point.context // point.block
    order = torch.randperm(columns)
    plain = [tile(torch.randn(1, 1, point.context, 128)) for _ in range(2)]
    paged = [tile(torch.randn(columns, 1, point.block, 128)) for _ in range(2)]
    table = words(order[None])
    if point.op == "decode":
        q, at = tile(torch.randn(1, 1, 4, 128), ttnn.bfloat16), words([point.context - 1])
        config = DecodeConfig((4, 2), workers_per_head=point.workers)
        launch = partial(flash_decode, q, cur_pos=at, chunk_size=CHUNK, program_config=config)
    else:
        q, prefix = tile(torch.randn(1, 4, NODES, 128), ttnn.bfloat16), words([point.context - NODES])
        intervals = words([[list(range(NODES)), [NODES - 1] * NODES]])
        tree = ProgramConfig((4, 2), workers_per_head=point.workers, query_tiles=NODES * 4 // 32, key_chunk=CHUNK)
        launch = partial(tree_attention, q, prefix=prefix, intervals=intervals, program_config=tree)

    return Cycles(
        cycles_of(device, lambda: launch(k=plain[0], v=plain[1])),
        cycles_of(device, lambda: launch(k=paged[0], v=paged[1], page_table=table)),
    )


def _work(points: list[dict]) -> list[dict]:
    return measure_points((Point(**point) for point in points), measure_point)


def report(results: list[tuple[Point, Cycles]]) -> str:
    """Return the table, and how the largest ratio stands to the target."""
    lines = ["| op | context | block | workers | plain | paged | ratio |", "|---|---:|---:|---:|---:|---:|---:|"]
    for point, cycles in results:
        lines.append(
            f"| {point.op} | {point.context} | {point.block} | {point.workers} | {cycles.plain} | {cycles.paged} | "
            f"{cycles.ratio:.3f} |"
        )
    most = max(cycles.ratio for _, cycles in results)
    lines += ["", f"Pages cost at most {most:.3f}x (target {TARGET}x: {'met' if most <= TARGET else 'missed'})."]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.ops.bench_paged_cache", description=__doc__.splitlines()[0])
    add_write_option(parser, "--json")
    options = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    measured = measure_points_apart("perf.ops.bench_paged_cache", POINTS, GRID, TIMEOUT_S)
    results = [(point, Cycles(**cycles)) for point, cycles in zip(POINTS, measured, strict=True)]
    if options.write:
        rows = [asdict(point) | asdict(cycles) | {"ratio": cycles.ratio} for point, cycles in results]
        write(options.write, parser, argv, rows)
    print(report(results))
    return 0


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
