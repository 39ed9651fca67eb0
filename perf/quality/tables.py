# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Results as CSV files that a stopped run continues."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path


def shown(value: object) -> str:
    """A value as its cell: floats with six digits, None empty, the rest as str."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class Table:
    """A CSV file whose first columns name a measurement; each row is appended whole as soon as it is measured.

    Raises ValueError when the file has other columns: it is from another version, and is not overwritten.
    """

    def __init__(self, path: Path, keys: Sequence[str], values: Sequence[str]) -> None:
        self.path, self.keys, self.columns = path, tuple(keys), (*keys, *values)
        if not path.exists() or not path.stat().st_size:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(",".join(self.columns) + "\n", encoding="utf-8")
        text = path.read_text(encoding="utf-8")
        if not text.endswith("\n"):  # the run was stopped inside a row: measure it again
            text = text[: text.rfind("\n") + 1]
            path.write_text(text, encoding="utf-8")
        found = tuple(next(csv.reader(io.StringIO(text)), ()))
        if found != self.columns:
            raise ValueError(
                f"{path} has the columns {', '.join(found)}; this version writes {', '.join(self.columns)}: "
                "choose another --out, or remove the file"
            )
        self._known = {tuple(row[key] for key in self.keys) for row in self.rows()}

    def rows(self) -> list[dict[str, str]]:
        """All rows, every value as its text."""
        with self.path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def has(self, key: Mapping[str, object]) -> bool:
        """Whether the measurement of these key columns is there."""
        return tuple(shown(key[name]) for name in self.keys) in self._known

    def append(self, row: Mapping[str, object]) -> None:
        """Write one row. Raises ValueError unless it has exactly the table's columns."""
        if set(row) != set(self.columns):
            raise ValueError(f"{self.path} takes the columns {', '.join(self.columns)}, got {', '.join(row)}")
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow([shown(row[name]) for name in self.columns])
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line.getvalue())
        self._known.add(tuple(shown(row[name]) for name in self.keys))

