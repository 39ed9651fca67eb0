# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`llama-alspec check`: test stage by stage what works on this machine, and write a report.

Exit codes: 0 all that ran passed; 2 a stage failed; 1 a stage could not run, or the report could not be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runtime_patches.board.command_line import OneLineParser, run_command

from .. import simulated
from .findings import COULD_NOT_RUN, FAIL, PASS, SKIPPED, Finding, exit_code
from .report import make, markdown, write
from .runner import HIGHER, run_stages
from .stages import LEVELS, STAGES, Stage

PROG = "llama-alspec check"


def main(argv: Sequence[str] | None = None, stages: Sequence[Stage] = STAGES) -> int:
    """Run the stages of a level and write the report; return the exit code."""
    return run_command(PROG, lambda: _check(_parse(argv), stages))


def _check(options: argparse.Namespace, stages: Sequence[Stage]) -> int:
    findings: list[Finding] = []
    try:
        for finding in run_stages(stages, options.device, options.level, options.simulator):
            findings.append(finding)
            if not finding.why.startswith(HIGHER):
                _show(finding)
    except KeyboardInterrupt:
        findings.append(Finding("run", COULD_NOT_RUN, why="interrupted"))
        _show(findings[-1])
    except Exception as error:  # the report is written whatever is broken
        findings.append(Finding("run", COULD_NOT_RUN, why=f"{type(error).__name__}: {error}"))
        _show(findings[-1])
    if higher := sum(finding.why.startswith(HIGHER) for finding in findings):
        print(f"{SKIPPED:14}{higher} stages of higher levels")
    report, folder = make(findings, options.device, options.level, options.describe), options.report
    try:
        write(folder, report)
    except OSError as error:
        print(markdown(report))
        print(f"{PROG}: the report above could not be written to {folder}: {error.strerror}; --report chooses another")
        return max(exit_code(findings), 1)
    print(f"report: {folder / 'report.md'}, to paste into an issue, and report.json; nothing was uploaded")
    return exit_code(findings)


def _show(finding: Finding) -> None:
    print(f"{finding.status:14}{finding.stage:16}{finding.seconds:7.1f} s  {finding.why}".rstrip(), flush=True)
    if finding.status in (FAIL, COULD_NOT_RUN):
        for text in finding.advice:
            print(f"{'':14}-> {text}", flush=True)
    elif finding.status == PASS:
        for check in finding.checks:
            print(f"{'':14}{check.name}: {check.measured}", flush=True)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = OneLineParser(
        prog=PROG, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", choices=("n150", "sim"), default="n150", help="boards (default) or simulated chips")
    add("--simulator", metavar="PATH", help="with --device sim: a ttsim library in place of the project's simulator")
    add("--level", choices=LEVELS, default="quick", help="quick: a minute; full: a quarter of an hour; soak: longer")
    add(
        "--report", type=Path, default=Path("llama-alspec-check"), metavar="DIR",
        help="folder of report.json and report.md (%(default)s)",
    )  # fmt: skip
    add("--describe", metavar="TEXT", default="", help="one line for the report on what you are trying")
    options = parser.parse_args(argv)
    if options.simulator and options.device != "sim":
        parser.error(f"--simulator is for --device sim, got --device {options.device}")
    if options.simulator and (reason := simulated.why_not_on(options.simulator)):
        parser.error(reason)
    return options


if __name__ == "__main__":
    sys.exit(main())
