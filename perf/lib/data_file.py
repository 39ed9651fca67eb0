# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Results: data files of rows with the command, commit, versions and time that made them, files that a stopped run
continues, and tables in Markdown."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from runtime_patches.board.command_line import OneLineParser, run_command, version

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "perf" / "data"
PACKAGES = ("ttnn", "torch", "transformers", "wolfpine")
OUTPUTS = ("--write", "--plot", "--steps")  # name a file and leave the results as they are
Row = dict[str, Any]
_STARTED = time.monotonic()


def new_file(text: str) -> Path:
    """Return `text` as the path of a file that can be written, for argparse's `type=`: refused before measuring."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a folder, not a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {path.parent} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path} cannot be written")
    return path


def add_write_option(parser: argparse.ArgumentParser) -> None:
    """Add `--write FILE` to a command."""
    text = "also write the results there, with command, commit, versions and seconds (see perf/docs.py)"
    parser.add_argument("--write", type=new_file, metavar="FILE", help=text)


def write(
    path: Path,
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    rows: Sequence[Mapping[str, Any]],
    **facts: Any,
) -> None:
    """Write `rows`, one per table row, and `facts`, which hold for all of them, as a data file.

    argv: the command's arguments, None for the process's own. Raises ValueError outside a git checkout.
    """
    arguments = recorded(sys.argv[1:] if argv is None else argv)
    save(path, shlex.join([*parser.prog.split(), *arguments]), rows, **facts)


class Questions:
    """A command of several questions, each with options of its own; an answer is rows to write and text to print. It
    may set `options.facts`, which hold for all rows."""

    def __init__(self, prog: str, text: str | None, metavar: str = "QUESTION") -> None:
        self.parser = OneLineParser(prog=prog, description=text, allow_abbrev=False)
        self._questions = self.parser.add_subparsers(dest="question", required=True, metavar=metavar)

    def add(
        self, name: str, answer: Callable[[argparse.Namespace], tuple[list[Row], str]], text: str, write: bool = True
    ) -> argparse.ArgumentParser:
        """Add a question; return the parser that takes its options. write: takes --write."""
        question = self._questions.add_parser(name, help=text, description=text, allow_abbrev=False)
        question.set_defaults(answer=answer, write=None, facts={})
        if write:
            add_write_option(question)
        return question

    def run(self, argv: Sequence[str] | None, errors: tuple[type[Exception], ...]) -> int:
        """Return 0; 2 with one line for one of `errors`."""
        options = self.parser.parse_args(argv)

        def answer() -> int:
            rows, text = options.answer(options)
            if options.write:
                write(options.write, self.parser, argv, rows, **options.facts)
            print(text)
            return 0

        return run_command(self.parser.prog, answer, errors)


def save(path: Path, command: str, rows: Iterable[Mapping[str, Any]], **facts: Any) -> None:
    """Write a data file of `command`'s rows. Raises ValueError outside a git checkout."""
    seconds = round(time.monotonic() - _STARTED)
    head: Row = {"command": command, "commit": commit(), "date": f"{datetime.now(timezone.utc):%Y-%m-%d}"}
    # Of Python, and of the installed packages that results depend on.
    versions = {name: found for name in PACKAGES if (found := version(name))}
    head |= {"versions": {"python": platform.python_version()} | versions, "seconds": seconds}
    write_rows(path, head | facts, rows)


def write_rows(path: Path, facts: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON data file. One row per line, so that a changed figure is one changed line."""
    shown = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items()]
    table = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    path.write_text("{\n" + ",\n".join([*shown, f' "rows": [\n{table}\n ]']) + "\n}\n", encoding="utf-8")


def recorded(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without the options OUTPUTS and their files, and of a simulator's path the last part."""
    kept: list[str] = []
    for before, argument in zip([None, *arguments], arguments, strict=False):
        if before not in OUTPUTS and argument.split("=")[0] not in OUTPUTS:
            kept.append(Path(argument).name if before == "--simulator" else argument)
    return kept


def commit() -> str:
    """Return the checkout's commit, followed by "+changes" when sources differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    try:
        found = git("rev-parse", "--short=9", "HEAD").strip()
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "*.py", "*.cpp", "*.hpp", "*.h")
    except (OSError, subprocess.CalledProcessError) as error:
        raise ValueError(f"{ROOT} is no git checkout, and a data file records the commit") from error
    return found + ("+changes" if changed else "")


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
    return facts, [{name: value_of(cell) for name, cell in row.items()} for row in rows]


@cache
def read_rows(name: str) -> tuple[Row, ...]:
    """Return the rows of perf/data/`name`. CSV files of what others measured name their source in their first lines."""
    return tuple(read(FOLDER / name)[1])


def value_of(cell: str) -> Any:
    """Return a cell's text as int or float if it is one, None if it is empty."""
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell or None


def shown(value: object, digits: int = 6, nothing: str = "") -> str:
    """Return a value as its cell: floats with so many digits, None as `nothing`, the rest as str."""
    return nothing if value is None else f"{value:.{digits}g}" if isinstance(value, float) else str(value)


class Table:
    """A CSV file whose first columns name a measurement; its rows are appended as soon as they are measured.

    rows: every value as its text. head: what comments at the top of a new file say, with the date; perf/docs.py reads
    them. Raises ValueError when the file has other columns: it is from another version, and is not overwritten.
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
        self.rows = [dict(zip(self.columns, row)) for row in cells]

    def has(self, key: Mapping[str, object]) -> bool:
        """Return whether there is a row with these values."""
        wanted = {name: shown(value) for name, value in key.items()}
        return any(row.items() >= wanted.items() for row in self.rows)

    def append(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Write the rows of one measurement at once. Raises KeyError for a row without one of the columns."""
        lines = io.StringIO()
        for row in rows:
            cells = {name: shown(row[name]) for name in self.columns}
            csv.writer(lines, lineterminator="\n").writerow(cells.values())
            self.rows.append(cells)
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


def markdown(rows: Sequence[Mapping[str, object]], shared: Collection[str] = ()) -> str:
    """Return rows as tables, one for those with the same columns, without columns that are None throughout. Nested
    entries are columns "ENTRY.NAME".

    shared: columns that are the same in all rows, and stand in a line before the table.
    """
    tables: dict[tuple[str, ...], list[dict[str, object]]] = {}
    for row in rows:
        flat: dict[str, object] = {}
        for name, value in row.items():
            flat |= {f"{name}.{key}": cell for key, cell in value.items()} if isinstance(value, dict) else {name: value}
        tables.setdefault(tuple(flat), []).append(flat)
    parts: list[str] = []
    for columns, alike in tables.items():
        used = [name for name in columns if any(row[name] is not None for row in alike)]
        if before := [f"{name} {shown(alike[0][name], 4, '-')}" for name in used if name in shared]:
            parts.append(", ".join(before))
        parts.append(table(alike, [name for name in used if name not in shared]))
    return "\n\n".join(parts)


def table(rows: Sequence[Mapping[str, object]], columns: str | Sequence[str]) -> str:
    """Return the named columns of `rows` as a table in Markdown, floats with four digits."""
    names = columns.split() if isinstance(columns, str) else columns
    cells = [[shown(row[name], 4, "-") for name in names] for row in rows]
    heading, *lines = (f"| {' | '.join(line)} |" for line in (names, *cells))
    return aligned(heading, lines)


def aligned(heading: str, lines: Sequence[str]) -> str:
    """Return a table in Markdown, numbers to the right. heading, lines: with bars; at least one line."""
    columns = [list(column) for column in zip(*(line.strip("|").split("|") for line in lines), strict=True)]
    right = [all(re.match(r" *(?:\**[-+]?(?:\d|inf)|- *$)", cell) for cell in column) for column in columns]
    return "\n".join([heading, f"|{'|'.join('---:' if numbers else '---' for numbers in right)}|", *lines])
