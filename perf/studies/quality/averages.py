# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Show means over the windows of each context, with standard errors, as a table in Markdown.

`python -m perf.studies.quality.averages generated/quality/perplexity.csv`, for example.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

# Column -> (its heading, factor, digits).
SHOWN = {
    "hit_rate": ("hit rate (%)", 100, 1),
    "loss_change": ("loss change (nats)", 1, 4),
    "divergence": ("KL (nats)", 1, 4),
    "agreement": ("agreement (%)", 100, 1),
    "deviation": ("deviation (%)", 100, 1),
}
# What a group of windows has in common, as far as the file has these columns.
GROUP = (
    "model",
    "text",
    "context",
    "chunk_size",
    "keys",
    "tail_alignment",
    "predictor",
    "method",
    "parameter",
)


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file; lines that begin with # are notes. Raises ValueError for one without windows."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    if not rows or "start" not in rows[0] or "hit_rate" not in rows[0]:
        raise ValueError(f"{path} has no windows with hit rates: perplexity, baselines and predictors do")
    return rows


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and its standard error; None for a single value."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return statistics.fmean(values), error


def averages(rows: Iterable[dict[str, str]]) -> list[dict[str, object]]:
    """Return one row per group of windows that differ in `start` alone, in the order of first appearance: the group's
    columns, `windows`, and for each column of SHOWN that is there (mean, standard error)."""
    groups: dict[tuple[tuple[str, str], ...], list[dict[str, str]]] = {}
    for row in rows:
        key = tuple((name, row[name]) for name in (*GROUP, "threshold") if name in row)
        groups.setdefault(key, []).append(row)
    return [
        {
            **dict(key),
            "windows": len({row["start"] for row in same}),
            **{
                name: mean_and_error([float(row[name]) for row in same])
                for name in SHOWN
                if all(row.get(name) for row in same)
            },
        }
        for key, same in groups.items()
    ]


def markdown(found: Sequence[dict[str, object]]) -> str:
    """Return the averages as a table, without the columns that are the same in every row."""
    names = [name for name in found[0] if name not in SHOWN and len({str(row[name]) for row in found}) > 1]
    shown = [name for name in SHOWN if name in found[0]]
    lines = [
        "| " + " | ".join([*names, *(SHOWN[name][0] for name in shown)]) + " |",
        "|" + "---|" * len(names) + "---:|" * len(shown),
    ]
    for row in found:
        cells = [str(row[name]) for name in names]
        for name in shown:
            _, factor, digits = SHOWN[name]
            cells.append(_with_error(row[name], factor, digits))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _with_error(value: object, factor: float, digits: int) -> str:
    assert isinstance(value, tuple)
    mean, error = value
    return f"{factor * mean:.{digits}f}" + ("" if error is None else f" ± {factor * error:.{digits}f}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="perf.studies.quality.averages", description=__doc__.split("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="CSV")
    args = parser.parse_args(argv)
    try:
        tables = [markdown(averages(rows_of(path))) for path in args.files]
    except (OSError, ValueError) as error:
        print(f"perf.studies.quality.averages: error: {error}", file=sys.stderr)
        return 2
    print("\n\n".join(tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())
