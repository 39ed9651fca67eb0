# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run the attention ops at long contexts on a simulated chip: errors against float64, cycles, when the guess leaves.

Llama 3.1 8B's attention of one user, head_dim 128, bfloat8_b caches full of random normal numbers: what the weights
average is of mean 0, so errors are large beside it. One key/value head on 8 workers, or all eight on 48 of 64 cores,
whose last row is the receiver of a virtual pair. Ops: the exact flash decode; the pair, whose sender speculates; the
guess alone; tree attention of 16 nodes. References are float64 on the caches as the device holds them.

Each measurement has a process of its own and is a row of --csv as soon as it is done; a run goes on where the last one
stopped. Cycles are a floor: read ratios.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perf.lib.counted_points import counted_from_start, cycles_until_end
from perf.lib.data_file import FOLDER, commit
from perf.lib.measuring_process import answered, measure_apart
from perf.lib.tables import Table
from perf.ops.bench_tree_attention import intervals_of, parents_of

CSV = FOLDER / "ops" / "long_context.csv"
CONTEXTS = (16384, 65536, 131072)
MAX_CONTEXT = 131072  # Llama 3.1's
OPS = ("exact", "pair", "guess", "tree")
HEAD_DIM, CHUNK_SIZE, NODES = 128, 128, 16
TIMEOUT_S = 3 * 3600


@dataclass(frozen=True)
class Layout:
    """chip: the grid of the simulated chip. sender, receiver: (columns, rows) of the pair's ranks, the receiver's below
    the sender's; ops that are alone have the sender's. workers: per key/value head."""

    kv_heads: int
    chip: str
    sender: tuple[int, int]
    receiver: tuple[int, int]
    workers: int


LAYOUTS = {
    8: Layout(1, "5x4", (5, 2), (5, 2), 8),
    64: Layout(8, "8x8", (8, 7), (8, 1), 6),
}
KEYS = ("cores", "context", "op")
VALUES = (
    "heads", "kv_heads", "workers", "cycles", "guess_sent", "of_exact", "error", "worst_head", "norm_error", "bias",
    "largest", "guess_error",
)  # fmt: skip


@dataclass(frozen=True)
class Errors:
    """How far a result is from its float64 reference. error: norm of the difference over the reference's norm;
    worst_head: the same of the worst query head (and node). norm_error: of the result's norm. bias: the difference
    along the reference. largest: absolute."""

    error: float
    worst_head: float
    norm_error: float
    bias: float
    largest: float


def errors_of(found, expected) -> Errors:
    """Return the errors of a result [..., head_dim] against a reference of its shape."""
    found, expected = found.double(), expected.double()
    difference = found - expected
    rows = difference.norm(dim=-1) / expected.norm(dim=-1)
    norm = expected.norm()
    return Errors(
        error=(difference.norm() / norm).item(),
        worst_head=rows.max().item(),
        norm_error=(found.norm() / norm - 1).item(),
        bias=((difference * expected).sum() / norm**2).item(),
        largest=difference.abs().max().item(),
    )


def measure_row(device, cores: int, context: int, op: str) -> dict[str, Any]:
    """Return VALUES of one measurement but `of_exact`. The op runs once, held until all its cores can start."""
    import torch
    import ttnn

    from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode, guess_flash_decode
    from tt_kernels.speculative_flash_decode.reference import speculative_flash_decode_reference
    from tt_kernels.tree_attention.op import ProgramConfig as TreeConfig
    from tt_kernels.tree_attention.op import tree_attention
    from tt_kernels.tree_attention.reference import tree_attention_reference

    layout = LAYOUTS[cores]
    heads = 4 * layout.kv_heads
    torch.manual_seed(context)

    def words(values):
        values = torch.tensor(values, dtype=torch.int32)
        return ttnn.from_torch(values, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)

    def tile(values, dtype=ttnn.bfloat16):
        return ttnn.from_torch(values, dtype=dtype, layout=ttnn.TILE_LAYOUT, device=device)

    caches = [tile(torch.randn(1, layout.kv_heads, context, HEAD_DIM), ttnn.bfloat8_b) for _ in range(2)]
    k, v = (ttnn.to_torch(cache) for cache in caches)
    results: list[Any] = []

    def counted(launch) -> tuple[dict, int]:
        return counted_from_start(device, lambda: results.append(launch()))

    row: dict[str, Any] = {"heads": heads, "kv_heads": layout.kv_heads, "workers": layout.workers}
    row |= {"guess_sent": None, "guess_error": None}
    if op == "tree":
        parents = parents_of("balanced", NODES)
        prefix = context - NODES
        q = torch.randn(1, heads, NODES, HEAD_DIM).bfloat16()
        tree_config = TreeConfig(layout.sender, workers_per_head=layout.workers)
        inputs = [tile(q), *caches, words([prefix]), words([intervals_of(parents)])]
        counts, start = counted(partial(tree_attention, *inputs, program_config=tree_config))
        expected = tree_attention_reference(q, k, v, [prefix], [parents])
        row |= {"cycles": cycles_until_end(counts.values(), start)}
        return row | asdict(errors_of(ttnn.to_torch(results[0]), expected))
    q = torch.randn(1, 1, heads, HEAD_DIM).bfloat16()
    inputs = [tile(q), *caches, words([context - 1])]
    reference = speculative_flash_decode_reference(q, k, v, [context - 1], chunk_size=CHUNK_SIZE)
    if op == "pair":
        launch, pairs, exchange = _pair(device, layout, inputs)
        counts, start = counted(launch)
        pairs.check()
        sender, receiver = results[0]
        assert torch.equal(ttnn.to_torch(receiver.exact), ttnn.to_torch(sender.guess))
        row["guess_sent"] = cycles_until_end([counts[exchange]], start)
        row["guess_error"] = errors_of(ttnn.to_torch(sender.guess), reference.guess).error
        rows = layout.sender[1]
        own = [cores for (_, y), cores in counts.items() if y < rows]
        row["cycles"] = cycles_until_end(own, start)
        return row | asdict(errors_of(ttnn.to_torch(sender.exact), reference.exact))
    config = ProgramConfig(layout.sender, workers_per_head=layout.workers)
    run = flash_decode if op == "exact" else guess_flash_decode
    counts, start = counted(partial(run, *inputs, chunk_size=CHUNK_SIZE, program_config=config))
    row["cycles"] = cycles_until_end(counts.values(), start)
    expected = reference.exact if op == "exact" else reference.guess
    return row | asdict(errors_of(ttnn.to_torch(results[0]), expected))


def _pair(device, layout: Layout, inputs: list[Any]) -> tuple[Any, Any, tuple[int, int]]:
    """Return what launches the pair, its CorePair and the sender's exchange core."""
    import torch
    import ttnn

    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.common.priority import HOLDS_EXACT, MAX_USERS, YIELDED, priority_row
    from tt_kernels.speculative_flash_decode.op import ProgramConfig
    from tt_kernels.speculative_flash_decode.virtual_pair import RankInputs, speculative_flash_decode_pair

    def words(values):
        return ttnn.from_torch(values, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)

    gathered = torch.zeros(1, 1, 2, MAX_USERS, dtype=torch.int32)
    gathered[0, 0, 0] = HOLDS_EXACT
    grids, origins = (layout.sender, layout.receiver), ((0, 0), (0, layout.sender[1]))
    first, second = ((x + grid[0] - 1, y + grid[1] - 1) for grid, (x, y) in zip(grids, origins, strict=True))
    pairs = CorePair(device, (first, second))
    q, k, v, at = inputs
    ranks = [
        RankInputs(
            q,
            k,
            v,
            at,
            words(priority_row((HOLDS_EXACT, YIELDED)[i])),
            words(gathered),
            ProgramConfig(grids[i], origins[i], workers_per_head=layout.workers),
            timeout_s=1.0,
        )
        for i in range(2)
    ]
    return partial(speculative_flash_decode_pair, ranks, pairs, chunk_size=CHUNK_SIZE), pairs, first


def _work(cores: int, context: int, op: str) -> dict[str, Any]:
    import ttnn

    device = ttnn.open_device(device_id=0)
    try:
        return measure_row(device, cores, context, op)
    finally:
        ttnn.close_device(device)


def measure_all(table: Table, cores: list[int], contexts: list[int], ops: list[str]) -> None:
    """Add the rows that `table` does not have, the exact op's of a context first."""
    from runtime_patches.profiling.cycles import CYCLE_VARIABLES, cycle_overlays
    from runtime_patches.simulated_n150.environment import process_environment, simulated_environment

    for context in contexts:
        for count in cores:
            for op in sorted(ops, key=OPS.index):
                key = {"cores": count, "context": context, "op": op}
                if table.has(key):
                    continue
                variables = simulated_environment(LAYOUTS[count].chip, cycle_overlays()) | CYCLE_VARIABLES
                row = measure_apart("perf.ops.bench_long_context", key, process_environment(variables), TIMEOUT_S)
                of_exact = None
                if op == "pair" and (exact := _cycles_of(table, key | {"op": "exact"})):
                    of_exact = row["cycles"] / exact
                table.append([key | row | {"of_exact": of_exact}])
                print(key | row, flush=True)


def _cycles_of(table: Table, key: dict[str, Any]) -> int | None:
    found = (row for row in table.rows() if all(row[name] == str(value) for name, value in key.items()))
    return next((int(row["cycles"]) for row in found), None)


def _context(text: str) -> int:
    if not text.isdigit() or not 2 * CHUNK_SIZE < int(text) <= MAX_CONTEXT or int(text) % CHUNK_SIZE:
        raise argparse.ArgumentTypeError(
            f"a context is a multiple of {CHUNK_SIZE} above {2 * CHUNK_SIZE} and up to {MAX_CONTEXT}, got {text!r}"
        )
    return int(text)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.ops.bench_long_context", description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", nargs="+", type=_context, default=list(CONTEXTS), metavar="TOKENS")
    parser.add_argument("--cores", nargs="+", type=int, choices=sorted(LAYOUTS), default=sorted(LAYOUTS))
    parser.add_argument("--ops", nargs="+", choices=OPS, default=list(OPS))
    parser.add_argument("--csv", type=Path, default=CSV, help="where the rows are, and go (default: %(default)s)")
    options = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    head = {"command": parser.prog, "commit": commit()}
    measure_all(Table(options.csv, KEYS, VALUES, head), options.cores, options.contexts, options.ops)
    return 0


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
