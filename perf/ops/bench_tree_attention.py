# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compare tree attention with the stock op and with plain decodes, in simulated cycles.

One key/value head of four query heads, on as many cores for each: the tree; a chain of as many nodes; the stock decode
attention with an explicit mask, the nodes' queries as so many heads of one user; one plain flash decode, of which a
tree of N nodes replaces N; and the tree with a guess, which one more core decides on. The kernels of this repository
start together on all cores (start_line.py); the stock op is run on one core only, as it is started.

The simulator's cost model is deterministic and a floor: ratios within one run mean something, cycles do not.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, dataclass
from functools import partial

from models.llama31_8b.spec_decode.tree import TokenTree
from perf.lib.counted_points import cycles_of, cycles_until_end, measure_points, measure_points_apart
from perf.lib.data_file import add_write_option, write
from perf.lib.measuring_process import answered

GRID = "4x3"
KEY_CHUNK = 128
TARGET_NODES, TARGET_CONTEXT, DECODE_TARGET = 16, 2048, 1.5
GUESS, GUESS_CONTEXT, GUESS_TARGET = 128, 1024, 1.06
TIMEOUT_S = 7200
SHAPES = ("chain", "balanced", "skewed")


@dataclass(frozen=True)
class Point:
    """context: cached tokens with those of the tree, a multiple of 128 as the stock op wants it. shape: one of SHAPES.
    workers: cores of the head."""

    context: int
    nodes: int
    shape: str = "balanced"
    head_dim: int = 64
    heads: int = 4
    workers: int = 1

    @property
    def prefix(self) -> int:
        return self.context - self.nodes

    @property
    def interval_bytes(self) -> int:
        """What the mask takes in device memory: two integers per node."""
        return 2 * 4 * self.nodes

    @property
    def mask_bytes(self) -> int:
        """What the stock op's takes: a bfloat16 for each query and position, in whole tiles."""
        return 2 * -(-self.heads * self.nodes // 32) * 32 * self.context


@dataclass(frozen=True)
class Cycles:
    """Cycles of the tree, of a chain of as many nodes, of the stock op with a mask (None where it is not measured), of
    one plain decode, and of the tree with a guess of GUESS tokens at either end (None where that is everything).
    Errors: ValueError for what cannot have been measured."""

    tree: int
    chain: int
    stock: int | None
    decode: int
    speculating: int | None = None

    def __post_init__(self) -> None:
        measured = [self.tree, self.chain, self.decode, *(c for c in (self.stock, self.speculating) if c is not None)]
        if min(measured) <= 0:
            raise ValueError(f"not measurable: {self}")


POINTS = [
    Point(256, 4),
    Point(256, 16),
    Point(256, 16, "skewed"),
    Point(256, 64),
    Point(1024, 16),
    Point(1024, 16, workers=4),
]
LONG_POINTS = [
    *POINTS,
    *(Point(context, nodes) for context in (1024, 2048, 4096) for nodes in (4, 16, 64)),
    *(Point(context, nodes, "skewed") for context in (1024, 2048) for nodes in (4, 16, 64)),
    Point(2048, 16, workers=8),
    Point(2048, 64, workers=8),
]


def parents_of(shape: str, nodes: int) -> list[int]:
    """Return the parents of a tree. chain; balanced: two children per node, level by level; skewed: a chain of half of
    the nodes, each of which has a leaf beside it. Errors: ValueError."""
    if shape == "chain":
        return list(range(-1, nodes - 1))
    if shape == "balanced":
        return [-1] + [(node - 1) // 2 for node in range(1, nodes)]
    if shape == "skewed":
        return [-1] + [(node - 1) // 2 * 2 - (node > 2) if node > 2 else 0 for node in range(1, nodes)]
    raise ValueError(f"shape must be one of {', '.join(SHAPES)}, got {shape!r}")


def intervals_of(parents: list[int]) -> tuple[list[int], list[int]]:
    """Return enter and leave times of nodes whose parents come before them."""
    tree = TokenTree.from_parents(parents)
    return tree.enter.tolist(), tree.leave.tolist()


def measure_point(device, point: Point) -> Cycles:
    """Run all of them at one shape. What the host compiles meanwhile costs no cycles of the chip."""
    import torch
    import ttnn

    from runtime_patches.profiling.cycles import measure
    from tt_kernels.speculative_flash_decode.op import ProgramConfig as DecodeConfig
    from tt_kernels.speculative_flash_decode.op import flash_decode
    from tt_kernels.tree_attention.op import ProgramConfig, check_intervals, check_room, tree_attention
    from tt_kernels.tree_attention.speculative import speculative_tree_attention

    torch.manual_seed(0)

    def tile(*shape):
        return ttnn.from_torch(torch.randn(shape), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

    def words(values):
        values = torch.tensor(values, dtype=torch.int32)
        return ttnn.from_torch(values, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)

    rows = point.heads * point.nodes
    q = tile(1, point.heads, point.nodes, point.head_dim)
    q_one, q_rows = tile(1, 1, point.heads, point.head_dim), tile(1, 1, rows, point.head_dim)
    k, v = (tile(1, 1, point.context, point.head_dim) for _ in range(2))
    grid = (point.workers, 1) if point.workers <= 4 else (4, 2)
    prefix = words([point.prefix])
    check_room([point.prefix], point.nodes, point.context)

    def tree(shape, op=tree_attention, grid=grid):
        enter, leave = intervals_of(parents_of(shape, point.nodes))
        check_intervals(enter, leave)
        intervals = words([[enter, leave]])
        # All query tiles on the same cores: the keys are read once.
        tiles = -(-rows // 32)
        config = ProgramConfig(grid, workers_per_head=point.workers, query_tiles=tiles, key_chunk=KEY_CHUNK)
        return partial(op, q, k, v, prefix, intervals, program_config=config)

    at = words([point.context - 1])
    decode = partial(
        flash_decode,
        q_one,
        k,
        v,
        at,
        chunk_size=KEY_CHUNK,
        program_config=DecodeConfig(grid, workers_per_head=point.workers),
    )

    stock = None
    if point.workers == 1:
        mask = tile(1, 1, rows, point.context)  # its values cost nothing
        config = ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=ttnn.CoreCoord(1, 1), q_chunk_size=32, k_chunk_size=KEY_CHUNK
        )
        attend = partial(
            ttnn.transformer.scaled_dot_product_attention_decode,
            q_rows,
            k,
            v,
            is_causal=False,
            attn_mask=mask,
            program_config=config,
        )
        counts = measure(device, attend)
        stock = cycles_until_end(
            counts.values(), min(span.start for core in counts.values() for span in core.kernels().values())
        )
    shaped, chained = tree(point.shape), tree("chain")
    speculating = None
    if point.prefix >= 2 * GUESS:
        guessing = partial(speculative_tree_attention, chunk_size=GUESS)
        speculating = cycles_of(device, tree(point.shape, guessing, (4, 3)))
    return Cycles(
        cycles_of(device, shaped),
        cycles_of(device, chained),
        stock,
        cycles_of(device, decode),
        speculating,
    )


def run(points: list[Point]) -> list[tuple[Point, Cycles]]:
    """Return the cycles of each point, measured in a process that holds a simulated chip."""
    measured = measure_points_apart("perf.ops.bench_tree_attention", points, GRID, TIMEOUT_S)
    return [(point, Cycles(**cycles)) for point, cycles in zip(points, measured, strict=True)]


def _work(points: list[dict]) -> list[dict]:
    return measure_points((Point(**point) for point in points), measure_point)


def table_rows(results: list[tuple[Point, Cycles]]) -> list[dict]:
    """Return the rows of a data file: shape, cycles, ratios and bytes of the masks of each point."""
    return [
        asdict(point)
        | asdict(cycles)
        | {"of_stock": cycles.tree / cycles.stock if cycles.stock else None}
        | {"of_decode": cycles.tree / cycles.decode, "of_decodes": cycles.tree / cycles.decode / point.nodes}
        | {"of_tree": cycles.speculating / cycles.tree if cycles.speculating else None}
        | {"interval_bytes": point.interval_bytes, "mask_bytes": point.mask_bytes}
        for point, cycles in results
    ]


def report(results: list[tuple[Point, Cycles]]) -> str:
    """Return the table, and how the points stand to the targets."""
    lines = [
        "| context | nodes | shape | workers | tree | / chain | stock, mask | / stock | decode | / decode "
        "| / N decodes | with a guess | / tree | interval bytes | mask bytes |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for point, cycles in results:
        stock = "-" if cycles.stock is None else str(cycles.stock)
        of_stock = "-" if cycles.stock is None else f"{cycles.tree / cycles.stock:.2f}"
        guess = (
            "- | -" if cycles.speculating is None else f"{cycles.speculating} | {cycles.speculating / cycles.tree:.3f}"
        )
        lines.append(
            f"| {point.context} | {point.nodes} | {point.shape} | {point.workers} | {cycles.tree} | "
            f"{cycles.tree / cycles.chain:.3f} | {stock} | {of_stock} | {cycles.decode} | "
            f"{cycles.tree / cycles.decode:.2f} | {cycles.tree / cycles.decode / point.nodes:.2f} | {guess} | "
            f"{point.interval_bytes} | {point.mask_bytes} |"
        )
    lines.append("")
    compared = [cycles.tree / cycles.stock for _, cycles in results if cycles.stock is not None]
    if compared:
        lines.append(
            f"Against the stock op with a mask: at most {max(compared):.2f}x its cycles (target 1x: "
            f"{_verdict(max(compared) <= 1)})."
        )
    for point, cycles in results:
        if point.nodes == TARGET_NODES and point.context >= TARGET_CONTEXT:
            ratio = cycles.tree / cycles.decode
            lines.append(
                f"{point.nodes} nodes at {point.context}, {point.workers} worker(s): {ratio:.2f}x a plain decode "
                f"(target {DECODE_TARGET}x: {_verdict(ratio <= DECODE_TARGET)})."
            )
        if point.nodes == TARGET_NODES and point.context >= GUESS_CONTEXT and cycles.speculating is not None:
            ratio = cycles.speculating / cycles.tree
            lines.append(
                f"With a guess: {point.nodes} nodes at {point.context}, {point.workers} worker(s): {ratio:.3f}x the "
                f"tree (target {GUESS_TARGET}x: {_verdict(ratio <= GUESS_TARGET)})."
            )
    return "\n".join(lines)


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.ops.bench_tree_attention", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--long", action="store_true", help="also contexts of 2048 and 4096, 64 nodes, 8 workers")
    add_write_option(parser, "--json")
    options = parser.parse_args(argv)
    points = LONG_POINTS if options.long else POINTS
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    results = run(points)
    if options.write:
        write(options.write, parser, argv, table_rows(results))
    print(report(results))
    return 0


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
