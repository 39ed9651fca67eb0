# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Weigh the cycles of hits and misses by measured hit rates: which guess makes a pair of chips faster.

Files of the study's `perplexity`, of bench_flash_decode --predictors (a layer's attention: the sender's where the
guess fails, the receiver's where it passes, as in appendix F) and of bench_alspec --predictor (whole steps).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from perf.docs import Row, read
from perf.lib.data_file import add_write_option, tabulate

LAYERS = 32  # of the model whose step makes all lists at once
Shape = tuple[str, int, int]  # of what, cached tokens, workers
Costs = tuple[float, float]  # cycles with a miss and with a hit


def table_rows(rows: Iterable[Row], threshold: float = 0.1, chunk_size: int = 128) -> list[Row]:
    """Return a row per kind of cycles, context and number of workers that was measured with both predictors: hit rates,
    expected cycles, and `gain`, those of `ends` over those of `followed`. Errors: ValueError where hit rates of the
    context are missing."""
    rates: dict[tuple[str, int], list[float]] = {}
    costs: dict[Shape, dict[str, dict[float, float]]] = {}
    for row in rows:
        if row["chunk_size"] != chunk_size:
            continue
        if "threshold" in row:
            if row["threshold"] == threshold:
                rates.setdefault((row["predictor"], row["context"]), []).append(row["hit_rate"])
        elif "sender" in row:
            if row["whole_tail"] and row["masses"] == bool(row["tiles"]):
                predictor = "followed" if row["masses"] else "ends"
                chosen = row["selection"] / LAYERS
                found = costs.setdefault(("attention", row["context"], row["workers"]), {})
                found[predictor] = {0.0: row["sender"] + chosen, 1.0: row["receiver"] + chosen}
        elif row["hit_rate"] in (0.0, 1.0):
            found = costs.setdefault(("step", row["context"], row["workers"]), {})
            found.setdefault(row["predictor"], {})[row["hit_rate"]] = row["cycles"]
    return [
        _weighed(shape, {name: (found[0.0], found[1.0]) for name, found in by.items()}, rates)
        for shape, by in sorted(costs.items())
        if set(by) == {"ends", "followed"}
    ]


def _weighed(shape: Shape, costs: Mapping[str, Costs], rates: Mapping[tuple[str, int], list[float]]) -> Row:
    part, context, workers = shape
    at = context // 1024 * 1024  # hit rates are of whole thousands, some cycles of a token more
    found: Row = {"part": part, "context": context, "workers": workers}
    for name, (miss, hit) in costs.items():
        if (name, at) not in rates:
            raise ValueError(f"no hit rate of {name} at {at} tokens")
        share = mean(rates[name, at])
        found |= {f"{name}_hits": share, name: round(miss + share * (hit - miss))}
    return found | {"gain": found["ends"] / found["followed"]}


def report(table: Sequence[Row]) -> str:
    """Return `table_rows` as text."""
    lines = [
        f"{'':>10}{'tokens':>8}{'workers':>9}{'ends hit':>10}{'followed':>10}{'ends':>10}{'followed':>10}{'gain':>8}"
    ]
    for row in table:
        lines.append(
            f"{row['part']:>10}{row['context']:>8}{row['workers']:>9}{row['ends_hits']:>10.1%}"
            f"{row['followed_hits']:>10.1%}{row['ends']:>10}{row['followed']:>10}{row['gain']:>7.3f}x"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.projections.predictor_choice", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    add_write_option(parser)
    args = parser.parse_args(argv)

    def make() -> list[Row]:
        table = table_rows(row for path in args.files for row in read(path)[1])
        if not table:
            raise ValueError("these files have no cycles of both predictors at the same context and workers")
        return table

    return tabulate(parser, argv, args.write, make, report)


if __name__ == "__main__":
    raise SystemExit(main())
