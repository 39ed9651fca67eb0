# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tabulate returned reports of `llama-alspec check` beside each other.

One column per report.json; a row per check with what was expected, and a row per stage with its status.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models.llama31_8b.check.report import SCHEMA
from runtime_patches.board.command_line import OneLineParser, run_command


def read(path: Path) -> dict[str, Any]:
    """Return a report. Errors: OSError, ValueError naming the file if it is none, or of another schema."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise ValueError(f"{path}: no report of schema {SCHEMA}")
    return report


def table(reports: Sequence[dict[str, Any]]) -> str:
    """Return Markdown: stages and their checks in the order of the reports."""
    cells: dict[tuple[str, str], dict[int, str]] = {}
    expected: dict[tuple[str, str], str] = {}
    for column, report in enumerate(reports):
        for stage in report["stages"]:
            cells.setdefault((stage["stage"], ""), {})[column] = stage["status"]
            for check in stage["checks"]:
                key = stage["stage"], check["name"]
                cells.setdefault(key, {})[column] = _cell(check["measured"])
                if check["expected"] is not None:
                    expected.setdefault(key, _cell(check["expected"]))
    order = list(dict.fromkeys(stage for stage, _ in cells))
    rows = sorted(cells, key=lambda key: order.index(key[0]))
    lines = ["| stage | check | expected | " + " | ".join(f"{r['run']}, {r['device']}" for r in reports) + " |"]
    lines.append("|---" * (3 + len(reports)) + "|")
    for key in rows:
        found = " | ".join(cells[key].get(column, "-") for column in range(len(reports)))
        lines.append(f"| {key[0]} | {key[1]} | {expected.get(key, '')} | {found} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "/")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return 0, or 2 with one line if a file is no report."""
    parser = OneLineParser(prog="python -m perf.reports", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="report.json of llama-alspec check")
    options = parser.parse_args(argv)

    def tabulated() -> int:
        print(table([read(path) for path in options.files]))
        return 0

    return run_command(parser.prog, tabulated, (ValueError,))


if __name__ == "__main__":
    sys.exit(main())
