# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Data files: results with the command, commit, versions and time that made them. The documents take every measured
figure from these files (perf/docs.py)."""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from perf.lib.files import new_file

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "perf" / "data"
PACKAGES = ("ttnn", "torch", "transformers", "wolfpine")
OUTPUTS = (
    "--write",
    "--json",
    "--plot",
    "--trace",
    "--steps",
)  # options that name a file and leave the results as they are
_ASSIGNED = tuple(f"{name}=" for name in OUTPUTS)
_STARTED = time.monotonic()


def add_write_option(parser: argparse.ArgumentParser, *aliases: str) -> None:
    """Add `--write FILE` to a command. aliases: older names of the option, which keep working."""
    parser.add_argument(
        "--write",
        *aliases,
        dest="write",
        type=new_file,
        metavar="FILE",
        help="also write the results there, with command, commit, versions and seconds (see perf/docs.py)",
    )


def tabulate(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    path: Path | None,
    make: Callable[[], list[dict[str, Any]]],
    report: Callable[[list[dict[str, Any]]], str],
) -> int:
    """Make a table, `write` it to `path` if one is given, print its report and return 0. OSError and ValueError end the
    process with their message."""
    try:
        table = make()
        if path:
            write(path, parser, argv, table)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(report(table))
    return 0


def write(
    path: Path,
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    rows: Sequence[Mapping[str, Any]],
    **facts: Any,
) -> None:
    """Write `rows`, one per table row, and `facts`, which hold for all of them, as a data file.

    argv: the command's arguments, None for the process's own. Errors: ValueError outside a git checkout.
    """
    arguments = without_outputs(sys.argv[1:] if argv is None else argv)
    save(path, shlex.join([*parser.prog.split(), *arguments]), rows, **facts)


def save(path: Path, command: str, rows: Iterable[Mapping[str, Any]], **facts: Any) -> None:
    """Write a data file of `command`'s rows. Errors: ValueError outside a git checkout."""
    seconds = round(time.monotonic() - _STARTED)
    head: dict[str, Any] = {"command": command, "commit": commit(), "date": f"{datetime.now(timezone.utc):%Y-%m-%d}"}
    head |= {"versions": versions(), "seconds": seconds}
    # One row per line, so that a changed figure is one changed line.
    shown = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in (head | facts).items()]
    table = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    path.write_text("{\n" + ",\n".join([*shown, f' "rows": [\n{table}\n ]']) + "\n}\n", encoding="utf-8")


def without_outputs(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without the options OUTPUTS and their files."""
    kept: list[str] = []
    for before, argument in zip([None, *arguments], arguments, strict=False):
        its_file = before in OUTPUTS and not argument.startswith("-")  # --json is a flag of some commands
        if argument not in OUTPUTS and not its_file and not argument.startswith(_ASSIGNED):
            kept.append(argument)
    return kept


def commit() -> str:
    """Return the checkout's commit, followed by "+changes" when sources differ from it."""
    try:
        found = _git("rev-parse", "--short=9", "HEAD").strip()
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "*.py", "*.cpp", "*.hpp", "*.h")
    except (OSError, subprocess.CalledProcessError) as error:
        raise ValueError(f"{ROOT} is no git checkout, and a data file records the commit") from error
    return found + ("+changes" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that results depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
