# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run stages, each in a child process with a time limit, and say of each how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from runtime_patches import sgdc
from runtime_patches.board import boards
from runtime_patches.board.environment import process_environment, silicon_environment
from runtime_patches.board.runtime_root import RuntimeRootError
from runtime_patches.profiling.cycles import CYCLE_VARIABLES, cycle_overlays

from .advice import advice
from .findings import COULD_NOT_RUN, FAIL, PASS, SKIPPED, Check, Finding, failed_checks
from .stages import SIM_PATIENCE, Stage

ROOT = Path(__file__).resolve().parents[3]
SIM_CHIPS = 2
HIGHER = "of level "  # how the reason begins why a stage of a higher level is skipped


def run_stages(
    stages: Sequence[Stage], kind: str, level: str, *, recording: bool = False, recorded: dict[str, Any] | None = None
) -> Iterator[Finding]:
    """Yield the finding of every stage, in order. kind: "sim" or "n150". recorded: filled with outputs.

    A stage of a higher level, one whose needs did not pass, and one for more chips than there are is skipped.
    """
    passed: set[str] = set()
    for stage in stages:
        reason = _why_skipped(stage, kind, level, passed)
        if reason:
            finding = Finding(stage.name, SKIPPED, why=reason)
        else:
            finding = _run(stage, kind, recording, {} if recorded is None else recorded)
        if finding.status == PASS:
            passed.add(stage.name)
        yield finding


def _why_skipped(stage: Stage, kind: str, level: str, passed: set[str]) -> str:
    if not stage.runs_at(level):
        return f"{HIGHER}{stage.level}"
    if missing := [need for need in stage.needs if need not in passed]:
        return f"needs {', '.join(missing)}"
    chips = SIM_CHIPS if kind == "sim" else len(boards.visible_boards())
    return f"needs {stage.chips} chips, there is {chips}" if stage.chips > max(chips, 1) else ""


def environment_of(stage: Stage, kind: str) -> dict[str, str]:
    """Return the environment of a stage's process. Raises RuntimeRootError if a part is missing."""
    if stage.mesh is None:
        return dict(os.environ)
    if kind == "n150":
        limits = {"TT_METAL_OPERATION_TIMEOUT_SECONDS": str(round(stage.limit_s / 2))}
        return process_environment(limits | silicon_environment(sgdc.overlays()))
    from runtime_patches.simulated_n150 import environment as simulated

    mesh = None if stage.chips == 1 else stage.mesh
    counting = cycle_overlays() if stage.timed else {}
    variables = simulated.simulated_environment(stage.grid, sgdc.overlays() | counting, mesh=mesh, dispatch="fast")
    return simulated.process_environment(variables | (CYCLE_VARIABLES if stage.timed else {}))


def _run(stage: Stage, kind: str, recording: bool, recorded: dict[str, Any]) -> Finding:
    started = time.monotonic()
    try:
        answer = _answer(stage, kind, recording)
    except (RuntimeRootError, OSError) as error:
        answer = {"could_not_run": " ".join(str(error).split())}
    seconds = round(time.monotonic() - started, 1)
    checks = tuple(Check(**check) for check in answer.get("checks", ()))
    if "could_not_run" in answer:
        status, why = COULD_NOT_RUN, answer["could_not_run"]
    elif "error" in answer:
        status, why = FAIL, f"{answer['error']} (while {answer['phase']})"
    else:
        why = failed_checks(checks)
        status = FAIL if why else PASS
        recorded |= answer["recorded"]
    return Finding(stage.name, status, seconds, why, () if status == PASS else advice(stage.name, why), checks)


def _answer(stage: Stage, kind: str, recording: bool) -> dict[str, Any]:
    """Return the child's answer, else {"error"}; with an error also "phase": what the child was doing."""
    limit = stage.limit_s * (SIM_PATIENCE if kind == "sim" else 1)
    asked = {"body": stage.body, "kind": kind, "mesh": stage.mesh, "recording": recording}
    with tempfile.TemporaryDirectory() as folder:
        answer, log = Path(folder) / "answer.json", Path(folder) / "log.txt"
        command = [sys.executable, "-m", f"{__package__}.child", str(answer), json.dumps(asked)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environment_of(stage, kind), cwd=ROOT, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                return {"error": f"took longer than {limit:g} s", "phase": _phase(answer)}
            finally:
                _end(process)
        if answer.is_file():
            return {"phase": _phase(answer), **json.loads(answer.read_text(encoding="utf-8"))}
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
        return {"error": f"its process ended with {how}: {_last_line(log)}", "phase": _phase(answer)}


def _phase(answer: Path) -> str:
    said = answer.with_suffix(".phase")
    return said.read_text(encoding="utf-8") if said.is_file() else "starting its process"


def _end(process: subprocess.Popen) -> None:
    """End a child and all that it started in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "it said nothing")
