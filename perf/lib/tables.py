# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Results as files that a stopped run continues, and as tables in Markdown."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


def shown(value: object) -> str:
    """Return a value as its cell: floats with six digits, None empty, the rest as str."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class Table:
    """A CSV file whose first columns name a measurement; its rows are appended as soon as they are measured.

    head: what comments at the top of a new file say, with the date; perf/docs.py reads them. Raises ValueError when the
    file has other columns: it is from another version, and is not overwritten.
    """

    def __init__(
        self, path: Path, keys: Sequence[str], values: Sequence[str], head: Mapping[str, str] | None = None
    ) -> None:
        self.path, self.columns = path, (*keys, *values)
        if not path.exists() or not path.stat().st_size:
            path.parent.mkdir(parents=True, exist_ok=True)
            facts = {**head, "date": f"{datetime.now(timezone.utc):%Y-%m-%d}"} if head else {}
            comments = "".join(f"# {name}: {fact}\n" for name, fact in facts.items())
            path.write_text(comments + ",".join(self.columns) + "\n", encoding="utf-8")
        text = path.read_text(encoding="utf-8")
        if not text.endswith("\n"):  # the run was stopped inside a row: measure it again
            path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
        found, *cells = csv.reader(line for line in path.read_text("utf-8").splitlines() if not line.startswith("#"))
        if tuple(found) != self.columns:
            raise ValueError(
                f"{path} has the columns {', '.join(found)}; this version writes {', '.join(self.columns)}: "
                "choose another --out, or remove the file"
            )
        self._rows = [dict(zip(self.columns, row)) for row in cells]

    def rows(self) -> list[dict[str, str]]:
        """Return all rows, every value as its text."""
        return list(self._rows)

    def has(self, key: Mapping[str, object]) -> bool:
        """Return whether there is a row with these values."""
        wanted = {name: shown(value) for name, value in key.items()}
        return any(row.items() >= wanted.items() for row in self._rows)

    def append(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Write the rows of one measurement at once. Raises KeyError for a row without one of the columns."""
        lines = io.StringIO()
        for row in rows:
            cells = {name: shown(row[name]) for name in self.columns}
            csv.writer(lines, lineterminator="\n").writerow(cells.values())
            self._rows.append(cells)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(lines.getvalue())


class Kept:
    """Measured steps in a JSON file, which takes each as soon as it is done, so that a stopped run goes on.

    path: None keeps nothing. of: what the steps are of. Raises ValueError for a file with steps of something else.
    """

    def __init__(self, path: Path | None, of: object) -> None:
        self.path, self.of = path, of
        self.steps: dict[str, Any] = {}
        if path is not None and path.exists():
            found = json.loads(path.read_text())
            if found["of"] != of:
                raise ValueError(f"{path} has steps of {found['of']}, asked for are {of}")
            self.steps = found["steps"]

    def add(self, name: str, step: Any) -> None:
        self.steps[name] = step
        if self.path is not None:
            self.path.write_text(json.dumps({"of": self.of, "steps": self.steps}) + "\n")


def flattened(row: Mapping[str, object]) -> dict[str, object]:
    """Return a row whose nested entries are columns "ENTRY.NAME"."""
    found: dict[str, object] = {}
    for name, value in row.items():
        found |= {f"{name}.{key}": cell for key, cell in value.items()} if isinstance(value, dict) else {name: value}
    return found


def markdown(rows: Sequence[Mapping[str, object]], shared: Collection[str] = ()) -> str:
    """Return rows as tables, one for those with the same columns, without columns that are None throughout.

    shared: columns that are the same in all rows, and stand in a line before the table.
    """
    tables: dict[tuple[str, ...], list[dict[str, object]]] = {}
    for row in map(flattened, rows):
        tables.setdefault(tuple(row), []).append(row)
    parts: list[str] = []
    for columns, alike in tables.items():
        used = [name for name in columns if any(row[name] is not None for row in alike)]
        if before := [f"{name} {_cell(alike[0][name])}" for name in used if name in shared]:
            parts.append(", ".join(before))
        parts.append(table(alike, [name for name in used if name not in shared]))
    return "\n\n".join(parts)


def table(rows: Sequence[Mapping[str, object]], columns: str | Sequence[str]) -> str:
    """Return the named columns of `rows` as a table in Markdown, floats with four digits."""
    names = columns.split() if isinstance(columns, str) else columns
    heading, *lines = (f"| {' | '.join(line)} |" for line in (names, *([_cell(row[n]) for n in names] for row in rows)))
    return aligned(heading, lines)


def aligned(heading: str, lines: Sequence[str]) -> str:
    """Return a table in Markdown, numbers to the right. heading, lines: with bars; at least one line."""
    columns = [list(column) for column in zip(*(line.strip("|").split("|") for line in lines), strict=True)]
    right = [all(re.match(r" *(?:\**[-+]?(?:\d|inf)|- *$)", cell) for cell in column) for column in columns]
    return "\n".join([heading, f"|{'|'.join('---:' if numbers else '---' for numbers in right)}|", *lines])


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
