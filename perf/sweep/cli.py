# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Command line of the sweeps."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from perf.lib.files import new_file
from perf.sweep.configurations import SOURCES, chosen, from_file, suites
from perf.sweep.judge import compare, differences
from perf.sweep.runner import sweep, with_tracy
from perf.sweep.table import PASS, TableError, opened, read, report, table
from runtime_patches.board.command_line import OneLineParser

TIMEOUT_S = 1800.0
TOLERANCE = 0.05
OF_A_SWEEP = ("only", "source", "jobs", "retry_failed", "tracy", "log", "list")  # options that only a run has


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python -m perf.sweep",
        allow_abbrev=False,
        description="Device perf sweeps: ops and decode steps, each configuration in a process of its own, into a CSV "
        "that tt-perf-report reads. See perf/README.md.",
    )
    parser.add_argument("--suite", choices=sorted(suites()), help="built-in configurations")
    parser.add_argument("--suite-file", type=Path, metavar="FILE", help="configurations in YAML instead")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="FILTER",
        help="families, any of them, and option=value, option<=number, option>=number, all of them",
    )
    parser.add_argument("--source", choices=SOURCES, help="where times come from; named in every row")
    parser.add_argument("--csv", type=new_file, metavar="FILE", help="appended to; what it holds is not run again")
    parser.add_argument("--jobs", type=int, metavar="N", help="of sim: configurations at a time (default 1)")
    parser.add_argument("--retry-failed", action="store_true", help="run again what did not pass")
    parser.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        metavar="S",
        help=f"of a configuration (default {TIMEOUT_S:g})",
    )
    parser.add_argument(
        "--tracy", action="store_true", help="of n150: times by python -m tracy, of a ttnn built with it"
    )
    parser.add_argument("--log", type=new_file, metavar="FILE", help="append what the processes print")
    parser.add_argument("--list", action="store_true", help="print the configurations and run none")
    parser.add_argument("--measurements", type=new_file, metavar="FILE", help="the groups of --csv as JSON")
    parser.add_argument(
        "--against-model",
        action="store_true",
        help="decode steps of --csv beside the decode model, by kind of op",
    )
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"), help="two sweeps' CSV")
    parser.add_argument(
        "--tolerance", type=float, metavar="SHARE", help=f"of --compare, two-sided (default {TOLERANCE:g})"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 when --compare finds a difference, or no configuration passed; 2 for options that make no
    sense."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        if options.compare:
            return _compare(parser, options)
        if options.tolerance is not None:
            parser.error("--tolerance is of --compare; without it, it changes nothing")
        if options.against_model and (options.suite or options.suite_file):
            parser.error("--against-model is of a --csv that is there; it does not go with a sweep")
        if not (options.suite or options.suite_file):
            return _shown(parser, options)
        return _swept(parser, options)
    except (TableError, ValueError) as error:
        parser.error(str(error))
    return 2


def _compare(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    tolerance = TOLERANCE if options.tolerance is None else options.tolerance
    if not 0 <= tolerance < float("inf"):
        parser.error(f"--tolerance must be at least 0 and finite, got {tolerance}")
    for name in (*OF_A_SWEEP, "suite", "suite_file", "csv", "measurements", "against_model"):
        if getattr(options, name):
            parser.error(f"--{name.replace('_', '-')} does not go with --compare, which only reads two files")
    before, after = (read(path) for path in options.compare)
    found = compare(before, after)
    print(differences(found, tolerance))
    return 1 if any(difference.beyond(tolerance) for difference in found) else 0


def _swept(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.suite and options.suite_file:
        parser.error("--suite and --suite-file: give one of them")
    if not 0 < options.timeout < float("inf"):
        parser.error(f"--timeout must be above 0 and finite, got {options.timeout:g}")
    every = suites()[options.suite] if options.suite else from_file(options.suite_file)
    configurations = chosen(every, options.only)
    if options.list:
        print("\n".join(configuration.name for configuration in configurations))
        return 0
    if options.csv is None or options.source is None:
        parser.error("a sweep needs --csv FILE and --source " + ", ".join(SOURCES))
    if options.tracy and options.source != "n150":
        parser.error(f"--tracy is of --source n150, not {options.source}")
    if options.jobs is not None and (options.source != "sim" or options.jobs < 1):
        parser.error(f"--jobs is of --source sim and at least 1, got {options.source} and {options.jobs}")
    _ready(options.source)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with opened(options.csv, options.retry_failed) as rows:
        sweep(
            configurations,
            options.source,
            rows,
            timeout_s=options.timeout,
            log=options.log,
            say=lambda text: print(text, flush=True),
            start=with_tracy if options.tracy else None,
            jobs=options.jobs or 1,
        )
    names = {configuration.name for configuration in configurations}
    blocks = [b for b in read(options.csv) if b.name in names and b.source == options.source]
    passed = [block for block in blocks if block.status == PASS]
    if passed:
        print(report(passed))
        _export(options)
    print(f"{len(passed)} of {len(blocks)} configurations passed; {options.csv}")
    return 0 if passed else 1


def _ready(source: str) -> None:
    """Check the source. Raises ValueError when nothing of this source could run at all."""
    if source == "model":
        return
    if source == "n150":
        from runtime_patches.board import doctor

        reason = doctor.why_not()
    else:
        from runtime_patches.simulated_n150 import doctor as simulators

        reason = simulators.why_not("simulator")
    if reason:
        raise ValueError(f"--source {source}: {reason}")


def _shown(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Show what a CSV holds, without running anything."""
    if options.csv is None or any(getattr(options, name) for name in OF_A_SWEEP):
        parser.error("give --suite or --suite-file to run; --csv alone shows a sweep; --compare two of them")
    if options.against_model and options.measurements:
        parser.error("--against-model prints steps beside the model; --measurements does not go with it")
    blocks = read(options.csv)
    if options.against_model:
        from perf.sweep.judge import report as beside

        steps = [b for b in blocks if b.status == PASS and b.options()["family"] == "decode"]
        if not steps:
            raise ValueError(f"{options.csv} has no decode step that passed")
        print("\n\n".join(beside(block) for block in steps))
        return 0
    print(report([block for block in blocks if block.status == PASS]))
    for block in blocks:
        if block.status != PASS:
            print(f"{block.status} {block.name} ({block.source}): {block.signpost['REASON']}")
    _export(options)
    return 0


def _export(options: argparse.Namespace) -> None:
    if options.measurements:
        blocks = read(options.csv)
        found = {f"{b.name} ({b.source})": table(b) for b in blocks if b.status == PASS}
        options.measurements.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
