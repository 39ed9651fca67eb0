# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure what speculation costs the flash decode kernel, in simulated cycles.

One head on a virtual pair: the sender's cycles against the exact variant of the same kernels on as many
workers, the cycles until the guess has left for the peer, and the receiver's until it has arrived. With one
worker a head, as where a chip has as many heads as cores, up to the seven of Llama's 8 heads on 64 cores. All
cores start together (start_line.py).

The simulator's cost model is deterministic and a floor: ratios within one run mean something, cycles do not.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from perf.lib.counted_points import (
    counted_from_start,
    cycles_of,
    cycles_until_end,
    measure_points,
    measure_points_apart,
)
from perf.lib.data_file import add_write_option, write
from perf.lib.files import new_file
from perf.lib.measuring_process import answered

GRID = "5x4"  # two rows per rank
RANK_GRID = (5, 2)
CHUNKS_OF_TARGET = 8
OVERHEAD_TARGET, GUESS_TARGET = 1.05, 0.40
TIMEOUT_S = 3600


@dataclass(frozen=True)
class Point:
    """A shape: cached tokens, tokens per chunk, and how it is run. first, last, whole_tail, tiles: of the guess_range,
    by default chunk_size tokens at either end; the tiles are every second one. masses: the sender hands out the masses
    of all tiles."""

    context: int
    chunk_size: int
    head_dim: int = 64
    heads: int = 4
    workers: int = 1
    last: int | None = None
    whole_tail: bool = False
    first: int | None = None
    tiles: int = 0
    masses: bool = False

    @property
    def guess(self) -> str:
        """The tokens of the guess: of a chunk, or first + last; + where the tail is whole, and listed tiles."""
        sizes = f"{self.chunk_size}" if self.last is None else f"{self.first or self.chunk_size} + {self.last}"
        if self.tiles:
            sizes = f"{self.first} + {self.tiles} x 32 + {self.last}"
        return sizes + ("+" if self.whole_tail else "")

    @property
    def chunks(self) -> int:
        return -(-self.context // self.chunk_size)


@dataclass(frozen=True)
class Cycles:
    """Cycles from the moment all cores start: until the exact variant was done; the whole sender; its exchange core
    with the guess; the receiver, which had it then; and until the guess alone, which leaves the rest of the cache
    unread, was done. selection: those of the op that chooses one layer's tiles, 0 without masses. Errors: ValueError
    for what cannot have been measured."""

    exact: int
    sender: int
    guess: int
    receiver: int
    guess_alone: int
    selection: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.guess <= self.sender or min(self.exact, self.receiver, self.guess_alone) <= 0:
            raise ValueError(f"not measurable: {self} (the guess leaves after the start and before the end)")

    @property
    def overhead(self) -> float:
        return self.sender / self.exact

    @property
    def guess_share(self) -> float:
        return self.guess / self.sender


# Around the target's 8 chunks, and Llama's default layout; the long form adds contexts, head_dim 128 and two workers.
POINTS = [
    *(Point(32 * chunks, 32) for chunks in (4, 8, 12)),
    Point(512, 64),
    Point(1024, 128),
    Point(1024, 32, workers=7),
]
# Predictors at a context that ends just after a tile boundary, where the tail of the first holds the fewest tokens; and
# what it costs to follow the attention where a head has a chip's share of cores, by context.
_FOLLOWED = Point(1025, 128, first=32, last=128, whole_tail=True, tiles=3)
_SHARED = replace(_FOLLOWED, context=4096, head_dim=128, workers=7)
_SHARED_ENDS = Point(4096, 128, head_dim=128, workers=7, whole_tail=True)
PREDICTOR_POINTS = [
    Point(1025, 128),
    Point(1025, 128, whole_tail=True),
    Point(1025, 64, last=192),
    Point(1025, 192, last=64),
    _FOLLOWED,
    replace(_FOLLOWED, masses=True),
    _SHARED_ENDS,
    _SHARED,
    replace(_SHARED, masses=True),
    *(
        replace(point, context=context)
        for context in (1024, 2048, 8192)
        for point in (_SHARED_ENDS, replace(_SHARED, masses=True))
    ),
]
LONG_POINTS = [
    *POINTS,
    Point(256, 64),
    Point(768, 64),
    Point(512, 64, head_dim=128),
    Point(512, 64, workers=2),
    Point(1024, 64, workers=2),
    Point(1024, 32, workers=2),
    Point(1024, 32, workers=4),
    Point(256, 32, workers=7),
    Point(2048, 32, workers=7),
    Point(1024, 128, workers=7),
    Point(5120, 128, workers=7),
    *(Point(2048, 128, workers=workers) for workers in (2, 3, 7)),
]


def measure_point(device, point: Point) -> Cycles:
    """Run all variants at one shape. What the host compiles meanwhile costs no cycles of the chip."""
    import torch
    import ttnn

    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.common.priority import HOLDS_EXACT, MAX_USERS, YIELDED, priority_row
    from tt_kernels.speculative_flash_decode.op import (
        GuessRange,
        ProgramConfig,
        flash_decode,
        guess_flash_decode,
    )
    from tt_kernels.speculative_flash_decode.tile_lists import list_rows
    from tt_kernels.speculative_flash_decode.virtual_pair import RankInputs, speculative_flash_decode_pair
    from tt_kernels.tile_selection.op import select_tiles

    torch.manual_seed(0)

    def tile(*shape):
        return ttnn.from_torch(torch.randn(shape), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

    def words(values, dtype=ttnn.uint32):
        return ttnn.from_torch(values, dtype=dtype, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)

    q = tile(1, 1, point.heads, point.head_dim)
    k, v = (tile(1, 1, -(-point.context // 32) * 32, point.head_dim) for _ in range(2))
    at = words(torch.tensor([point.context - 1], dtype=torch.int32), ttnn.int32)
    exchange = ((4, 1), (4, 3))
    pairs = CorePair(device, exchange)
    gathered = torch.zeros(1, 1, 2, MAX_USERS, dtype=torch.int32)
    gathered[0, 0, 0] = HOLDS_EXACT
    seen = [words(gathered) for _ in range(2)]
    configs = [ProgramConfig(RANK_GRID, (0, 2 * i), workers_per_head=point.workers) for i in range(2)]
    listed = list(range(point.chunk_size // 32 + 1, 1 << 16, 2))[: point.tiles]
    lists = words(list_rows([point.context], [[listed]])) if point.tiles else None

    def masses():
        return words(torch.zeros(1, 1, -(-point.context // 32), dtype=torch.int32)) if point.masses else None

    ranks = [
        RankInputs(q, k, v, at, words(priority_row((HOLDS_EXACT, YIELDED)[i])), seen[i], config, 1e-2, lists, masses())
        for i, config in enumerate(configs)
    ]

    def exact():
        flash_decode(q, k, v, at, chunk_size=point.chunk_size, program_config=configs[0])

    guess_range = GuessRange(
        point.first or point.chunk_size, point.last or point.chunk_size, point.whole_tail, point.tiles
    )

    def guess():
        options = {"guess_range": guess_range, "tile_lists": lists, "program_config": configs[0]}
        guess_flash_decode(q, k, v, at, chunk_size=point.chunk_size, **options)

    def pair():
        speculative_flash_decode_pair(ranks, pairs, chunk_size=point.chunk_size, guess_range=guess_range)

    alone, guessed = cycles_of(device, exact), cycles_of(device, guess)
    both, start = counted_from_start(device, pair)
    pairs.check()
    selection = 0
    if point.masses:
        chosen = ([ranks[0].tile_masses], [lists], at, guess_range)
        selection = cycles_of(device, lambda: select_tiles(*chosen))
    sides = [[cores for (_, y), cores in both.items() if y // 2 == rank] for rank in range(2)]
    return Cycles(
        exact=alone,
        sender=cycles_until_end(sides[0], start),
        guess=cycles_until_end([both[exchange[0]]], start),
        receiver=cycles_until_end(sides[1], start),
        guess_alone=guessed,
        selection=selection,
    )


def run(points: list[Point]) -> list[tuple[Point, Cycles]]:
    """Return the cycles of each point, measured in a process that holds a simulated chip."""
    measured = measure_points_apart("perf.ops.bench_flash_decode", points, GRID, TIMEOUT_S)
    return [(point, Cycles(**cycles)) for point, cycles in zip(points, measured, strict=True)]


def _work(points: list[dict]) -> list[dict]:
    return measure_points((Point(**point) for point in points), measure_point)


def table_rows(results: list[tuple[Point, Cycles]]) -> list[dict]:
    """Return the rows of a data file: shape, cycles and ratios of each point; sender_of_ends: over the sender whose
    guess is as large and reads both ends, None where it was not measured."""
    senders = {point: cycles.sender for point, cycles in results}
    found = []
    for point, cycles in results:
        ends = senders.get(replace(point, first=None, last=None, tiles=0, masses=False))
        found.append(
            asdict(point)
            | {"guess_range": point.guess, "chunks": point.chunks}
            | asdict(cycles)
            | {"overhead": cycles.overhead, "guess_share": cycles.guess_share}
            | {"sender_of_ends": cycles.sender / ends if point.tiles and ends else None}
        )
    return found


def report(results: list[tuple[Point, Cycles]]) -> str:
    """Return the table, and how the points with 8 chunks or more stand to the targets."""
    lines = [
        "| context | chunk | chunks | head_dim | workers | exact | sender | ratio | guess | share "
        "| receiver | guess alone |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for point, cycles in results:
        lines.append(
            f"| {point.context} | {point.guess} | {point.chunks} | {point.head_dim} | {point.workers} | "
            f"{cycles.exact} | {cycles.sender} | {cycles.overhead:.3f} | {cycles.guess} | "
            f"{cycles.guess_share:.0%} | {cycles.receiver} | {cycles.guess_alone} |"
        )
    lines.append("")
    for size, workers in sorted({(point.chunk_size, point.workers) for point, _ in results}):
        alike = [(p, c) for p, c in results if (p.chunk_size, p.workers) == (size, workers)]
        aimed = [cycles for point, cycles in alike if point.chunks >= CHUNKS_OF_TARGET]
        if not aimed:
            continue
        worst, latest = max(c.overhead for c in aimed), max(c.guess_share for c in aimed)
        lines.append(
            f"Chunks of {size}, {workers} worker(s) per head, from {CHUNKS_OF_TARGET} chunks up: the sender "
            f"costs at most {worst:.3f}x exact (target {OVERHEAD_TARGET}x: "
            f"{_verdict(worst <= OVERHEAD_TARGET)}), the guess leaves after at most {latest:.0%} of its "
            f"cycles (target {GUESS_TARGET:.0%}: {_verdict(latest <= GUESS_TARGET)})."
        )
    return "\n".join(lines)


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def save_plot(results: list[tuple[Point, Cycles]], path: Path) -> Path:
    """Draw cycles over chunks, a panel per chunk size, of the points with head_dim 64 and one worker; return `path`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    plain = [(p, c) for p, c in results if p.head_dim == Point.head_dim and p.workers == Point.workers]
    sizes = sorted({point.chunk_size for point, _ in plain})
    figure = Figure(figsize=(4 * len(sizes) + 0.5, 3.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for panel, size in zip(figure.subplots(1, len(sizes), squeeze=False).flat, sizes, strict=True):
        line = sorted(((p.chunks, c) for p, c in plain if p.chunk_size == size), key=lambda pair: pair[0])
        for name, style in (("exact", "k--s"), ("sender", "C0-o"), ("receiver", "C2-^"), ("guess", "C1-v")):
            panel.plot([n for n, _ in line], [getattr(c, name) for _, c in line], style, label=name, markersize=4)
        panel.set_title(f"chunks of {size} tokens", fontsize=10)
        panel.set_xlabel("chunks")
        panel.set_ylabel("cycles (simulated N150)")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3, linewidth=0.6)
        panel.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.ops.bench_flash_decode", description=__doc__.splitlines()[0])
    points_of = parser.add_mutually_exclusive_group()
    points_of.add_argument(
        "--long", action="store_true", help="also more contexts, head_dim 128, two and four workers per head"
    )
    points_of.add_argument("--predictors", action="store_true", help="only the predictors")
    add_write_option(parser, "--json")
    parser.add_argument("--plot", type=new_file, help="also draw them into this .png, .svg or .pdf")
    options = parser.parse_args(argv)
    points = PREDICTOR_POINTS if options.predictors else LONG_POINTS if options.long else POINTS
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    results = run(points)
    if options.write:
        write(options.write, parser, argv, table_rows(results))
    if options.plot:
        save_plot(results, options.plot)
    print(report(results))
    return 0


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
