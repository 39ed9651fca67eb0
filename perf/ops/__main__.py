# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure ops on simulated chips: cycles, errors and bytes beside those of stock ops, by point.

The simulator's cost model is deterministic and a floor: ratios within one run mean something, cycles do not. It charges
a packer's issue only, so what an op packs is free. Points are measured in a process of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from perf.lib.chip import Chip, answered, measure_apart, ttsim_library
from perf.lib.data_file import Kept, Row, add_write_option, commit, markdown, new_file, read, write, write_rows
from perf.ops.families import FAMILIES, Family, Point
from runtime_patches.board.command_line import OneLineParser, run_command
from runtime_patches.simulated_n150.library import version

TIMEOUT_S = 3 * 3600.0


def run(name: str, points: Sequence[Point], kept: Path | None = None) -> list[Row]:
    """Return the rows of points of a family, in their order.

    Args:
        points: with all of their options.
        kept: a file of measured points, which are not measured again, and which takes the others when they are done.

    Raises:
        SystemExit: with what went wrong in a process. ValueError: for a file of another family.
    """
    family, done = FAMILIES[name], Kept(kept, name)
    left = [point for point in points if json.dumps(point) not in done.steps]

    def place(point: Point) -> tuple[Chip, int | None]:
        return family.chip(SimpleNamespace(**point)), left.index(point) if family.apart else None

    for (chip, _), group in groupby(left, key=place):
        together = list(group)
        asked: dict[str, Any] = {"name": name, "points": together}
        answer = measure_apart("perf.ops", asked, chip.environment(), TIMEOUT_S)
        for point, found in zip(together, answer, strict=True):
            done.add(json.dumps(point), found)
    rows: list[Row] = []
    for point in points:
        for found in done.steps[json.dumps(point)]:
            row = point | found
            rows.append(row | family.complete(row, rows))
    return rows


def judge(name: str, points: Sequence[Point], library: Path, file: Path) -> list[Row]:
    """Replace the errors in a data file's rows of these points by those that a ttsim library gives, and name it there;
    cycles stay. The file is written after each point. Return the rows.

    Raises ValueError, before any work, for a point of which the file has no row.
    """
    family, (facts, rows) = FAMILIES[name], read(file)
    found = {json.dumps({key: row[key] for key in family.options}): row for row in rows}
    if missing := [point for point in points if json.dumps(point) not in found]:
        raise ValueError(f"{file} has no row of {missing[0]}")
    for point in points:
        chip = family.chip(SimpleNamespace(**point))
        asked: dict[str, Any] = {"name": name, "points": [point], "judged": True}
        ((judged,),) = measure_apart("perf.ops", asked, replace(chip, library=library).environment(), TIMEOUT_S)
        by = {"errors_by": f"ttsim {version(library)}", "errors_commit": commit()}
        found[json.dumps(point)].update({key: judged[key] for key in family.errors} | by)
        write_rows(file, facts, rows)
    return [found[json.dumps(point)] for point in points]


def _work(name: str, points: list[Point], judged: bool = False) -> list[list[Row]]:
    """Measure points of one chip in this process. judged: their errors alone."""
    import torch
    from loguru import logger

    family, found = FAMILIES[name], []
    module, function = family.measure.split(".")
    measure = getattr(import_module(f"perf.ops.{module}"), function)
    with family.chip(SimpleNamespace(**points[0])).opened() as device:
        for point in points:
            torch.manual_seed(0)
            rows = measure(device, SimpleNamespace(**point), **({"cycles": False} if judged else {}))
            logger.info(f"{point}: {rows}")
            found.append(rows if isinstance(rows, list) else [rows])
    return found


def _parser() -> argparse.ArgumentParser:
    lines = [f"  {name:15}{family.about}" for name, family in FAMILIES.items()]
    parser = OneLineParser(
        prog="python -m perf.ops",
        description=(__doc__ or "").splitlines()[0],
        epilog="\n".join(["ops:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("op", choices=FAMILIES, metavar="OP", help="one of those below")
    text = "points of your own: every combination of these values; other options have their defaults"
    add("point", nargs="*", metavar="OPTION=VALUE[,VALUE]", help=text)
    add("--points", metavar="LIST", help="a named list of points (default: default)")
    add("--steps", type=new_file, metavar="FILE", help="keep measured points there, and take those there")
    add("--simulator", metavar="PATH", help="with --errors-into: a ttsim library, which gives errors and no cycles")
    text = "replace the errors of these points in a data file by those on --simulator, and keep their cycles"
    add("--errors-into", type=new_file, metavar="FILE", help=text)
    add_write_option(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0, or end with 2 for options that make no sense, before any work."""
    parser = _parser()
    options = parser.parse_intermixed_args(argv)
    family = FAMILIES[options.op]
    try:
        if options.point and options.points:
            raise ValueError(f"--points {options.points} is a list of its own, without {' '.join(options.point)}")
        points = family.asked(options.point) if options.point else family.named(options.points or "default")
        os.environ.setdefault("OMP_NUM_THREADS", "2")
        if options.simulator or options.errors_into:
            print(markdown(judge(options.op, points, _check_judge(family, options), options.errors_into)))
            return 0
        rows = run(options.op, points, options.steps)
    except ValueError as error:
        parser.error(str(error))
    if options.write:
        write(options.write, parser, argv, rows)
    print(markdown(rows))
    return 0


def _check_judge(family: Family, options: argparse.Namespace) -> Path:
    """Return the ttsim library. Raises ValueError for options that do not go together."""
    if not (options.simulator and options.errors_into):
        raise ValueError("--simulator and --errors-into need each other")
    if not family.errors:
        raise ValueError(f"--simulator gives errors and no cycles; {options.op} has none")
    for name in ("steps", "write"):
        if getattr(options, name):
            raise ValueError(f"--{name} changes nothing beside --errors-into")
    return ttsim_library(options.simulator)


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else run_command("python -m perf.ops", main))
