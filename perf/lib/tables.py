# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Results as files that a stopped run continues, and as tables in Markdown."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


def shown(value: object) -> str:
    """Return a value as its cell: floats with six digits, None empty, the rest as str."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _without_comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


class Table:
    """A CSV file whose first columns name a measurement; its rows are appended as soon as they
    are measured. head: what comments at the top of a new file say, with the date; perf/docs.py reads them.

    Raises ValueError when the file has other columns: it is from another version, and is not overwritten.
    """

    def __init__(
        self, path: Path, keys: Sequence[str], values: Sequence[str], head: Mapping[str, str] | None = None
    ) -> None:
        self.path, self.keys, self.columns = path, tuple(keys), (*keys, *values)
        if not path.exists() or not path.stat().st_size:
            path.parent.mkdir(parents=True, exist_ok=True)
            facts = dict(head) | {"date": f"{datetime.now(timezone.utc):%Y-%m-%d}"} if head else {}
            comments = "".join(f"# {name}: {fact}\n" for name, fact in facts.items())
            path.write_text(comments + ",".join(self.columns) + "\n", encoding="utf-8")
        text = path.read_text(encoding="utf-8")
        if not text.endswith("\n"):  # the run was stopped inside a row: measure it again
            text = text[: text.rfind("\n") + 1]
            path.write_text(text, encoding="utf-8")
        found = tuple(next(csv.reader(_without_comments(text)), ()))
        if found != self.columns:
            raise ValueError(
                f"{path} has the columns {', '.join(found)}; this version writes {', '.join(self.columns)}: "
                "choose another --out, or remove the file"
            )
        self._known = [{key: row[key] for key in self.keys} for row in self.rows()]

    def rows(self) -> list[dict[str, str]]:
        """Return all rows, every value as its text."""
        return list(csv.DictReader(_without_comments(self.path.read_text(encoding="utf-8"))))

    def has(self, key: Mapping[str, object]) -> bool:
        """Return whether there is a row with these values in these of the key columns."""
        wanted = {name: shown(value) for name, value in key.items()}
        return any(all(row[name] == text for name, text in wanted.items()) for row in self._known)

    def append(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Write the rows of one measurement at once. Raises ValueError unless each has exactly the table's columns."""
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        for row in rows:
            if set(row) != set(self.columns):
                raise ValueError(f"{self.path} takes the columns {', '.join(self.columns)}, got {', '.join(row)}")
            writer.writerow([shown(row[name]) for name in self.columns])
        with self.path.open("a", encoding="utf-8") as file:
            file.write(lines.getvalue())
        self._known += [{name: shown(row[name]) for name in self.keys} for row in rows]


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
    lines: list[str] = []
    for columns, alike in tables.items():
        used = [name for name in columns if any(row[name] is not None for row in alike)]
        if before := [f"{name} {_cell(alike[0][name])}" for name in used if name in shared]:
            lines += [", ".join(before), ""]
        names = [name for name in used if name not in shared]
        lines += [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
        lines += [f"| {' | '.join(_cell(row[name]) for name in names)} |" for row in alike]
        lines.append("")
    return "\n".join(lines).rstrip()


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
