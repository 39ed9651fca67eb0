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
from typing import Any

from ..command_line import OneLineParser
from . import expectations
from .findings import COULD_NOT_RUN, FAIL, PASS, SKIPPED, Finding, exit_code
from .report import make, markdown, new_run_id, write
from .runner import HIGHER, run_stages
from .stages import LEVELS, STAGES, Stage, recorded_stages

PROG = "llama-alspec check"
KINDS = ("n150", "sim")


def main(argv: Sequence[str] | None = None, stages: Sequence[Stage] = STAGES) -> int:
    """Run the stages of a level and write the report; return the exit code."""
    options = _parse(argv)
    description = _description(options)
    findings: list[Finding] = []
    recorded: dict[str, Any] = {}
    run_id = new_run_id()
    if options.record:
        stages, level = recorded_stages(stages), LEVELS[-1]
    else:
        level = options.level
    try:
        for finding in run_stages(stages, options.device, level, recording=options.record, recorded=recorded):
            findings.append(finding)
            if not finding.why.startswith(HIGHER):
                _show(finding)
    except KeyboardInterrupt:
        findings.append(Finding("run", COULD_NOT_RUN, why="interrupted"))
    except Exception as error:  # noqa: BLE001 - the report is written whatever is broken
        findings.append(Finding("run", COULD_NOT_RUN, why=f"{type(error).__name__}: {error}"))
        _show(findings[-1])
    if higher := sum(finding.why.startswith(HIGHER) for finding in findings):
        print(f"{SKIPPED:14}{higher} stages of higher levels")
    if options.record and exit_code(findings) == 0:
        changed = ", ".join(expectations.write(recorded)) or "none"
        print(f"recorded: {len(recorded)} outputs in {expectations.FILE.name}; changed: {changed}")
    return _write(options.report, findings, options, description, run_id)


def _write(folder: Path, findings: list[Finding], options: argparse.Namespace, description: str, run_id: str) -> int:
    report = make(findings, options.device, options.level, description, run_id)
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


def _description(options: argparse.Namespace) -> str:
    """Return --describe, else a line that the user types; nothing is asked where no one can answer."""
    if options.describe is not None or not sys.stdin or not sys.stdin.isatty():
        return options.describe or ""
    try:
        return input("One line on what you are trying, for whoever reads the report: ").strip()
    except EOFError:
        return ""


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = OneLineParser(
        prog=PROG, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--device", choices=KINDS, default="n150", help="boards (default) or simulated chips")
    parser.add_argument(
        "--level", choices=LEVELS, default="quick", help="quick: a minute; full: a quarter of an hour; soak: longer"
    )
    parser.add_argument(
        "--report", type=Path, default=Path("llama-alspec-check"), metavar="DIR",
        help="folder of report.json and report.md (default llama-alspec-check)",
    )  # fmt: skip
    parser.add_argument("--describe", metavar="TEXT", help="one line for the report (default: asked in a terminal)")
    parser.add_argument(
        "--record", action="store_true",
        help="record the simulator's outputs of all ops, which later runs are compared with; with --device sim",
    )  # fmt: skip
    options = parser.parse_args(argv)
    if options.record and options.device != "sim":
        parser.error("--record takes outputs of the simulator: give --device sim")
    return options


if __name__ == "__main__":
    sys.exit(main())
