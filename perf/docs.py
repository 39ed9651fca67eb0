# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Write the figures of the documents from perf/data, or check that they agree (`--check`).

Four markers, HTML comments that a reader does not see; cells are Python format strings over a row's columns and its
file's other entries:

    <!-- table FILE... [COLUMN=VALUE|VALUE ...] [mean=COLUMN,COLUMN] [commands=none]
    | heading | heading |
    | {column} | {column:.2f}x |
    --> ... <!-- /table -->        a table of the rows, and the commands that made them
    <!-- figure FILE [COLUMN="A VALUE" ...] {column:.2f}x --> ... <!-- /figure -->  a figure of one row
    <!-- output FILE --> ... <!-- /output -->            what a command printed (perf/record.py)
    <!-- commands --> ... <!-- /commands -->        the list that `python -m perf` prints

FILE is below perf/data and may hold `*`; `mean` takes the mean of the rows that are equal in these columns, and has its
standard error in NAME_error.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shlex
import statistics
import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perf.__main__ import commands
from perf.lib.data_file import FOLDER, ROOT

WRITTEN = "<!-- Written by python -m "
Row = dict[str, Any]

_TABLE = re.compile(r"<!-- table ([^\n]+)\n(\|[^\n]+\|)\n(\|[^\n]+\|)\n-->.*?<!-- /table -->", re.DOTALL)
_FIGURE = re.compile(r"<!-- figure ((?:(?!-->).)+?) -->.*?<!-- /figure -->", re.DOTALL)
_OUTPUT = re.compile(r"<!-- output (\S+) -->.*?<!-- /output -->", re.DOTALL)
_COMMANDS = re.compile(r"<!-- commands -->.*?<!-- /commands -->", re.DOTALL)


class _Cells(string.Formatter):
    """Formats None as "-", whatever is asked for."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return "-" if value is None else super().format_field(value, format_spec)


def documents() -> list[Path]:
    """Return the documents whose figures need data; pages that a command writes whole have a test of their own."""
    pages = [page for page in sorted(ROOT.glob("docs/**/*.md")) if not page.read_text("utf-8").startswith(WRITTEN)]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "perf/README.md", *pages]


def read(path: Path) -> tuple[Row, list[Row]]:
    """Return the entries of a data file and its rows.

    A CSV file has its `command`s, `commit` and `date` in comments; its numbers become int or float, empty cells None.
    """
    text = path.read_text(encoding="utf-8")
    facts: Row = {}
    if path.suffix == ".json":
        facts = json.loads(text)
        return facts, facts.pop("rows")
    lines = text.splitlines()
    for line in lines:
        if match := re.match(r"# (command|commit|date): (.+)", line):
            facts[match[1]] = f"{facts[match[1]]}`, `{match[2]}" if match[1] in facts else match[2]
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return facts, [{name: _value(cell) for name, cell in row.items()} for row in rows]


def _value(cell: str) -> Any:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell or None


def select(asked: str) -> tuple[list[Row], list[Row]]:
    """Return the files' entries, and the rows that `asked` selects, each with its file's entries beside its columns.

    asked: FILE... [COLUMN=VALUE|VALUE ...]. Errors: ValueError when no file or no row is there.
    """
    words = shlex.split(asked)
    patterns = [word for word in words if "=" not in word]
    paths = [path for pattern in patterns for path in sorted(FOLDER.glob(pattern), key=_by_number)]
    if not paths:
        raise ValueError(f"{asked!r}: no such file in perf/data")
    files, found = [], []
    for path in paths:
        facts, rows = read(path)
        files.append(facts)
        found += [facts | row for row in rows]
    for word in words:
        name, equals, values = word.partition("=")
        if name == "mean":
            found = _means(found, values.split(","))
        elif equals and name != "commands":
            wanted = [_value(value) for value in values.split("|")]
            found = [row for row in found if row.get(name) in wanted]
    if not found:
        raise ValueError(f"{asked!r} selects no row")
    return files, found


def _means(rows: Sequence[Row], columns: Sequence[str]) -> list[Row]:
    """Return a row per combination of values of `columns`, with the means of numbers that differ.

    NAME_error is the standard error of each number, None for that of a single row.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in columns), []).append(row)
    found = []
    for group in groups.values():
        cells = {name: [row[name] for row in group] for name in group[0]}
        differ = {name for name, values in cells.items() if any(value != values[0] for value in values)}
        numbers = {name for name in cells if all(isinstance(value, (int, float)) for value in cells[name])}
        means = {name: statistics.fmean(cells[name]) for name in numbers & differ}
        errors = {f"{name}_error": 0.0 if len(group) > 1 else None for name in numbers - differ}
        errors |= {f"{name}_error": statistics.stdev(cells[name]) / len(group) ** 0.5 for name in means}
        found.append(group[0] | means | errors)
    return found


def _by_number(path: Path) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


def _table(match: re.Match[str]) -> str:
    asked, heading, cells = match.groups()
    files, rows = select(asked)
    lines = [_Cells().vformat(cells, (), row) for row in rows]
    columns = [list(column) for column in zip(*(line.strip("|").split("|") for line in lines), strict=True)]
    right = [all(re.match(r" *(?:\**[-+]?(?:\d|inf)|- *$)", cell) for cell in column) for column in columns]
    rule = "|" + "|".join("---:" if numbers else "---" for numbers in right) + "|"
    sources = [] if "commands=none" in asked.split() else ["", *_sources(files)]
    body = "\n".join([heading, rule, *lines, *sources])
    return f"<!-- table {asked}\n{heading}\n{cells}\n-->\n\n{body}\n\n<!-- /table -->"


def _sources(files: Sequence[Row]) -> list[str]:
    """Return a line per file: the command that made its rows, its commit, its day and its seconds."""
    lines = []
    for facts in files:
        cost = f", {facts['seconds']} s" if "seconds" in facts else ""
        lines.append(f"`{facts['command']}` ({facts['commit']}, {facts['date']}{cost})")
    return [f"- {line}" for line in lines]


def _figure(match: re.Match[str]) -> str:
    asked = match[1]
    selection, brace, cell = asked.partition(" {")
    _, rows = select(selection)
    if not brace or len(rows) != 1:
        raise ValueError(f"figure {asked!r}: {len(rows)} rows; a figure has one row and a format such as {{hits:.0%}}")
    return f"<!-- figure {asked} -->{_Cells().vformat('{' + cell, (), rows[0])}<!-- /figure -->"


def _output(match: re.Match[str]) -> str:
    _, rows = select(match[1])
    lines = "\n".join(row["line"] for row in rows)
    return f"<!-- output {match[1]} -->\n\n```\n{lines}\n```\n\n<!-- /output -->"


def generated(text: str) -> str:
    """Return a document with all its figures as the data have them. Errors: ValueError, KeyError."""
    text = _TABLE.sub(_table, text)
    text = _FIGURE.sub(_figure, text)
    text = _OUTPUT.sub(_output, text)
    return _COMMANDS.sub(lambda _: f"<!-- commands -->\n\n{_command_table()}\n\n<!-- /commands -->", text)


def module_of(command: str) -> str:
    """Return the module of `python -m MODULE ...`, or "" for another command."""
    words = command.split()
    return words[2] if words[:2] == ["python", "-m"] else ""


def _command_table() -> str:
    """Return the commands with the seconds that each took for its data files."""
    seconds: dict[str, list[int]] = {}
    for path in FOLDER.rglob("*.json"):
        facts, _ = read(path)
        seconds.setdefault(module_of(facts["command"]), []).append(facts["seconds"])
    lines = ["| `python -m ...` | | seconds |", "|---|---|---:|"]
    for module, what in commands():
        took = sorted(set(seconds.get(module, ())))
        shown = f"{took[0]} to {took[-1]}" if len(took) > 1 else f"{took[0]}" if took else "-"
        lines.append(f"| `{module}` | {what} | {shown} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0; 1 for markers without data, and with --check when a document differs from its data."""
    parser = argparse.ArgumentParser(prog="python -m perf.docs", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; 1 where text and data differ")
    options = parser.parse_args(argv)
    wrong, bad = [], []
    for path in documents():
        name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        try:
            new = generated(text)
        except (ValueError, KeyError) as error:
            bad.append(f"{name}: {error!r}")
            continue
        if new != text:
            wrong.append(name)
            if not options.check:
                path.write_text(new, encoding="utf-8")
    for line in bad:
        print(line)
    print(f"{'differ from perf/data' if options.check else 'written'}: {', '.join(wrong) or 'none'}")
    return 1 if bad or (wrong and options.check) else 0


if __name__ == "__main__":
    sys.exit(main())
