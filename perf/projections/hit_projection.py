# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What hit rates that perf.studies.quality measured are worth at long contexts on N150 chips, by the estimator.

Files of the parts `perplexity` (a token per step), `trees` and `chains` (tokens per step by rule and nodes). Times are
appendix F's, with a share of hits in place of a number of layers. Every assumption is in ASSUMPTIONS.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from perf.docs import Row, read
from perf.lib.data_file import add_write_option, tabulate
from perf.projections.estimator.latency import CHUNK_SIZES, estimate

CONTEXTS = (65536, 131072)
CHIPS = 8
ASSUMPTIONS = (
    "a hit rate is SmolLM2's at the measured context, taken to Llama 3.1 8B and to the projected one: hits fall with "
    "the context, so the gains of one predictor over another say more than the speeds",
    "a guess takes as long whichever 2S keys it reads, and sends no more",
    "a step of N nodes takes what a step of one does: attention waits for the cache and products for the weights; that "
    "holds up to 32 rows, and 64 nodes are shown under the same assumption",
    "drafting takes no time",
)
TOKENS = ("tokens_per_step", "exact_tokens_per_step")
# What the rows of a group have in common; the rest is averaged over windows.
GROUP = ("context", "chunk_size", "predictor", "threshold", "nodes", "rule")


def step_ns(hit_rate: float, context: int, chips: int, chunk_size: int) -> float:
    """Return the time of a step with a share of hits, in nanoseconds: the straight line between none and all."""
    none, full = (estimate(context, r, chips, "sp+tp", chunk_size).token_latency_ns for r in (0.0, 1.0))
    return none + hit_rate * (full - none)


def table_rows(measured: Iterable[Row], contexts: Sequence[int] = CONTEXTS, chips: int = CHIPS) -> list[Row]:
    """Return a row per group of `measured` rows and projected context: tokens/s/user, and the gains over exact
    attention in steps of as many nodes, `over_tp` with full tensor parallelism on as many chips, and `over_misses` with
    a pair that never hits.

    Errors: ValueError for rows without hit rates, or whose chunk size the estimator lacks.
    """
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in measured:
        if row.get("hit_rate") is None:
            raise ValueError(f"a row without a hit rate: {row}")
        if row["chunk_size"] not in CHUNK_SIZES:
            raise ValueError(f"the estimator has guesses of S = {', '.join(map(str, CHUNK_SIZES))}, got {row}")
        row = {"nodes": 1} | row
        groups.setdefault(tuple(row.get(name) for name in GROUP), []).append(row)
    found: list[Row] = []
    for key, rows in groups.items():
        share = sum(row["hit_rate"] for row in rows) / len(rows)
        tokens, exact = (sum(_tokens(row, name) for row in rows) / len(rows) for name in TOKENS)
        size = rows[0]["chunk_size"]
        for context in contexts:
            ns = step_ns(share, context, chips, size) / tokens
            found.append(
                dict(zip(GROUP, key))
                | {"hit_rate": share, "tokens_per_step": tokens, "projected": context, "chips": chips}
                | {"tokens_per_s": 1e9 / ns}
                | {"over_tp": estimate(context, None, chips, "tp").token_latency_ns / exact / ns}
                | {"over_misses": step_ns(0.0, context, chips, size) / exact / ns}
            )
    return found


def _tokens(row: Row, name: str) -> float:
    """Return the tokens of a step: as measured, all of a chain whose tokens are right, or one."""
    return row.get(name) or row["nodes"]


def report(table: Sequence[Row]) -> str:
    """Return `table_rows` as text, the assumptions first."""
    lines = ["projection, assuming that", *(f"  - {text}" for text in ASSUMPTIONS)]
    names = [name for name in GROUP if any(row[name] is not None for row in table)]
    lines.append(" ".join(f"{name:>10}" for name in (*names, "hits", "tokens", "at", "tokens/s", "over TP", "/misses")))
    for row in table:
        cells = [str(row[name]) for name in names]
        cells += [f"{row['hit_rate']:.1%}", f"{row['tokens_per_step']:.2f}", f"{row['projected'] // 1024}K"]
        cells += [f"{row['tokens_per_s']:.1f}", f"{row['over_tp']:.2f}x", f"{row['over_misses']:.2f}x"]
        lines.append(" ".join(f"{cell:>10}" for cell in cells))
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.projections.hit_projection", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="CSV")
    parser.add_argument("--threshold", type=float, default=0.10, help="rows of this threshold (0.10)")
    parser.add_argument("--chunk-size", type=int, choices=CHUNK_SIZES, default=128, help="rows of this S (128)")
    add_write_option(parser)
    args = parser.parse_args(argv)

    def make() -> list[Row]:
        rows = [row for path in args.files for row in read(path)[1]]
        wanted = {"threshold": args.threshold, "chunk_size": args.chunk_size}
        table = table_rows(row for row in rows if row.items() >= wanted.items())
        if not table:
            raise ValueError(f"no row of {', '.join(map(str, args.files))} has {wanted}")
        return table

    return tabulate(parser, argv, args.write, make, report)


if __name__ == "__main__":
    raise SystemExit(main())
