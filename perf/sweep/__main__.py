# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Time ops and decode steps on boards or on simulated chips, into tt-perf-report's CSV."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from perf.lib.data_file import new_file
from perf.sweep.configurations import SOURCES, from_file, suites
from perf.sweep.runner import sweep
from perf.sweep.table import PASS, opened, read, report
from runtime_patches.board.command_line import OneLineParser, run_command

TIMEOUT_S = 1800.0
OF_A_SWEEP = ("source", "retry_failed", "log", "list")  # options that only a run has


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 when no configuration passed; 2 for options that make no sense."""
    parser = OneLineParser(
        prog="python -m perf.sweep",
        allow_abbrev=False,
        description="Device perf sweeps: ops and decode steps, each configuration in a process of its own, into a CSV "
        "that tt-perf-report reads. See perf/README.md.",
    )
    add = parser.add_argument
    add("--suite", choices=sorted(suites()), help="built-in configurations")
    add(
        "--suite-file", type=Path, metavar="FILE", help="configurations of one's own, a line each as --list prints them"
    )
    add("--source", choices=SOURCES, help="where times come from; named in every row")
    add("--csv", type=new_file, metavar="FILE", help="appended to; what it holds is not run again")
    add("--retry-failed", action="store_true", help="run again what did not pass")
    text = f"of a configuration (default {TIMEOUT_S:g})"
    add("--timeout", type=float, default=TIMEOUT_S, metavar="S", help=text)
    add("--log", type=new_file, metavar="FILE", help="append what the processes print")
    add("--list", action="store_true", help="print the configurations and run none")
    options = parser.parse_args(argv)
    try:
        return _swept(options) if options.suite or options.suite_file else _shown(options)
    except ValueError as error:
        parser.error(str(error))


def _swept(options: Namespace) -> int:
    from runtime_patches.board import doctor
    from runtime_patches.simulated_n150 import doctor as simulators

    if options.suite and options.suite_file:
        raise ValueError("--suite and --suite-file: give one of them")
    if not 0 < options.timeout < float("inf"):
        raise ValueError(f"--timeout must be above 0 and finite, got {options.timeout:g}")
    configurations = suites()[options.suite] if options.suite else from_file(options.suite_file)
    if options.list:
        print("\n".join(configuration.name for configuration in configurations))
        return 0
    source = options.source
    if options.csv is None or source is None:
        raise ValueError("a sweep needs --csv FILE and --source " + ", ".join(SOURCES))
    if reason := doctor.why_not() if source == "n150" else simulators.why_not("simulator"):
        raise ValueError(f"--source {source}: {reason}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with opened(options.csv, options.retry_failed) as rows:
        sweep(configurations, source, rows, timeout_s=options.timeout, log=options.log)
    names = {configuration.name for configuration in configurations}
    blocks = [block for block in read(options.csv) if block.name in names and block.source == source]
    passed = sum(block.status == PASS for block in blocks)
    print(f"{report(blocks)}\n{passed} of {len(blocks)} configurations passed; {options.csv}")
    return 0 if passed else 1


def _shown(options: Namespace) -> int:
    """Show what a CSV holds, without running anything."""
    if options.csv is None or any(getattr(options, name) for name in OF_A_SWEEP):
        raise ValueError("give --suite or --suite-file to run; --csv alone shows a sweep")
    print(report(read(options.csv)))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command("python -m perf.sweep", main))
