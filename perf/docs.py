# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Write the tables of the documents from perf/data, or check that they agree (`--check`).

Three markers, HTML comments that a reader does not see; cells are Python format strings over a row's columns and its
file's other entries:

    <!-- table FILE... [COLUMN=VALUE|VALUE ...] [mean=COLUMN,COLUMN] [commands=none]
    | heading | heading |
    | {column} | {column:.2f}x |
    --> ... <!-- /table -->        a table of the rows, and the commands that made them
    <!-- output FILE --> ... <!-- /output -->            what a command printed (perf/record.py)
    <!-- commands --> ... <!-- /commands -->        the list that `python -m perf` prints

FILE is below perf/data and may hold `*`; `mean` takes the mean of the rows that are equal in these columns, and has its
standard error in NAME_error.
"""

from __future__ import annotations

import re
import shlex
import statistics
import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perf.__main__ import commands
from perf.lib.data_file import FOLDER, ROOT, Row, aligned, read, value_of
from runtime_patches.board.command_line import OneLineParser, run_command

_TABLE = re.compile(r"<!-- table ([^\n]+)\n(\|[^\n]+\|)\n(\|[^\n]+\|)\n-->.*?<!-- /table -->", re.DOTALL)
_OUTPUT = re.compile(r"<!-- output (\S+) -->.*?<!-- /output -->", re.DOTALL)
_COMMANDS = re.compile(r"<!-- commands -->.*?<!-- /commands -->", re.DOTALL)


def documents() -> list[Path]:
    pages = [ROOT / "README.md", ROOT / "perf/README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [page for page in pages if "<!-- " in page.read_text("utf-8")]


def select(asked: str) -> tuple[list[Row], list[Row]]:
    """Return the files' entries, and the rows that `asked` selects, each with its file's entries beside its columns.

    asked: FILE... [COLUMN=VALUE|VALUE ...]. Raises ValueError when no file or no row is there.
    """
    words = shlex.split(asked)
    patterns = [word for word in words if "=" not in word]
    paths = [path for pattern in patterns for path in sorted(FOLDER.glob(pattern), key=_by_number)]
    if not paths:
        raise ValueError(f"{asked!r}: no such file in perf/data")
    files = [read(path) for path in paths]
    found = [facts | row for facts, rows in files for row in rows]
    for word in words:
        name, equals, values = word.partition("=")
        if name == "mean":
            found = _means(found, values.split(","))
        elif equals and name != "commands":
            wanted = [value_of(value) for value in values.split("|")]
            found = [row for row in found if row.get(name) in wanted]
    if not found:
        raise ValueError(f"{asked!r} selects no row")
    return [facts for facts, _ in files], found


def _means(rows: Sequence[Row], columns: Sequence[str]) -> list[Row]:
    """Return a row per combination of values of `columns`, with the means of numbers that differ, and the standard
    error of each number as NAME_error: None for that of a single row."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in columns), []).append(row)
    found = []
    for group in groups.values():
        row = dict(group[0])
        for name in group[0]:
            values = [each[name] for each in group]
            if all(isinstance(value, (int, float)) for value in values):
                if differ := any(value != values[0] for value in values):
                    row[name] = statistics.fmean(values)
                error = statistics.stdev(values) / len(values) ** 0.5 if differ else 0.0
                row[f"{name}_error"] = error if len(values) > 1 else None
        found.append(row)
    return found


def _by_number(path: Path) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


class Cells(string.Formatter):
    """Formats None as "-", whatever is asked for."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return "-" if value is None else super().format_field(value, format_spec)


def markdown(heading: str, cells: str, rows: Sequence[Row]) -> str:
    """Return rows as a table in Markdown. cells: a line of Python format strings over a row's columns, with bars."""
    return aligned(heading, [Cells().vformat(cells, (), row) for row in rows])


def _table(match: re.Match[str]) -> str:
    asked, heading, cells = match.groups()
    files, rows = select(asked)
    lines = [markdown(heading, cells, rows)]
    if "commands=none" not in asked.split():
        costs = [f", {facts['seconds']} s" if "seconds" in facts else "" for facts in files]
        sources = zip(files, costs, strict=True)
        lines += ["", *(f"- `{file['command']}` ({file['commit']}, {file['date']}{cost})" for file, cost in sources)]
    body = "\n".join(lines)
    return f"<!-- table {asked}\n{heading}\n{cells}\n-->\n\n{body}\n\n<!-- /table -->"


def _output(match: re.Match[str]) -> str:
    _, rows = select(match[1])
    lines = "\n".join(row["line"] for row in rows)
    return f"<!-- output {match[1]} -->\n\n```\n{lines}\n```\n\n<!-- /output -->"


def generated(text: str) -> str:
    """Return a document with all its tables as the data have them. Raises ValueError or KeyError for what is not
    there."""
    text = _OUTPUT.sub(_output, _TABLE.sub(_table, text))
    return _COMMANDS.sub(lambda _: f"<!-- commands -->\n\n{_command_table()}\n\n<!-- /commands -->", text)


def module_of(command: str) -> str:
    """Return the module of `python -m MODULE ...`, or "" for another command."""
    words = command.split()
    return words[2] if words[:2] == ["python", "-m"] else ""


def _command_table() -> str:
    """Return the commands with the seconds that each took for its data files."""
    seconds: dict[str, set[int]] = {}
    for path in FOLDER.rglob("*.json"):
        facts, _ = read(path)
        if "seconds" in facts:
            seconds.setdefault(module_of(facts["command"]), set()).add(facts["seconds"])
    rows = [
        {"module": module, "what": what, "took": " to ".join(map(str, sorted({min(took), max(took)}))) if took else "-"}
        for module, what in commands()
        for took in [seconds.get(module)]
    ]
    return markdown("| `python -m ...` | | seconds |", "| `{module}` | {what} | {took} |", rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0; with --check 1 when a document differs from its data. 2 for a marker without data."""
    parser = OneLineParser(prog="python -m perf.docs", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; 1 where text and data differ")
    options = parser.parse_args(argv)
    wrong = []
    for path in documents():
        text = path.read_text(encoding="utf-8")
        try:
            new = generated(text)
        except (ValueError, KeyError) as error:
            parser.error(f"{path.relative_to(ROOT)}: {error!r}")
        if new != text:
            wrong.append(path.relative_to(ROOT).as_posix())
            if not options.check:
                path.write_text(new, encoding="utf-8")
    print(f"{'differ from perf/data' if options.check else 'written'}: {', '.join(wrong) or 'none'}")
    return 1 if wrong and options.check else 0


if __name__ == "__main__":
    sys.exit(run_command("python -m perf.docs", main))
