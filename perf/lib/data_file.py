# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Data files: rows of results with the command, commit, versions and time that made them, and tables of them."""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
