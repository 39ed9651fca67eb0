# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run stages, each in a child process with a time limit, and say of each how it ended. Both ends of the child are here:
`python -m models.llama31_8b.check.runner ANSWER REQUEST` runs one body and writes its answer as JSON."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runtime_patches import sgdc
from runtime_patches.board import environment
from runtime_patches.board.environment import process_environment, silicon_environment
from runtime_patches.board.runtime_root import RuntimeRootError

from .. import simulated
from .findings import COULD_NOT_RUN, FAIL, PASS, SKIPPED, Check, Context, CouldNotRun, Finding, failed_checks
from .stages import SIM_PATIENCE, Stage, advice

SIM_CHIPS = 2
HIGHER = "of level "  # how the reason begins why a stage of a higher level is skipped
TRACE_REGION_BYTES = 1 << 22


def run_stages(stages: Sequence[Stage], kind: str, level: str, library: str | None = None) -> Iterator[Finding]:
    """Yield the finding of every stage, in order. kind: "sim" or "n150". library: a ttsim library for "sim".

    A stage of a higher level, one whose needs did not pass, and one for more chips than there are is skipped.
    """
    passed: set[str] = set()
    for stage in stages:
        reason = _why_skipped(stage, kind, level, passed, library)
        finding = Finding(stage.name, SKIPPED, why=reason) if reason else _run(stage, kind, library)
        if finding.status == PASS:
            passed.add(stage.name)
        yield finding


def _why_skipped(stage: Stage, kind: str, level: str, passed: set[str], library: str | None) -> str:
    if not stage.runs_at(level):
        return f"{HIGHER}{stage.level}"
    if missing := [need for need in stage.needs if need not in passed]:
        return f"needs {', '.join(missing)}"
    if library is not None and stage.float32:
        return "ttsim refuses ttnn's unpacks of float32 tiles"
    chips = (SIM_CHIPS if library is None else 1) if kind == "sim" else len(environment.visible_boards())
    return f"needs {stage.chips} chips, found {chips}" if stage.chips > max(chips, 1) else ""


def _run(stage: Stage, kind: str, library: str | None) -> Finding:
    started = time.monotonic()
    try:
        answer = _answer(stage, kind, library)
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
    return Finding(stage.name, status, seconds, why, () if status == PASS else advice(stage, why), checks)


def _answer(stage: Stage, kind: str, library: str | None) -> dict[str, Any]:
    """Return the child's answer, else {"error"}; with an error also "phase": what the child was doing."""
    limit = stage.limit_s * (SIM_PATIENCE if kind == "sim" else 1)
    asked = json.dumps({"body": stage.body, "kind": kind, "mesh": stage.mesh})
    with tempfile.TemporaryDirectory() as folder:
        answer, log = Path(folder) / "answer.json", Path(folder) / "log.txt"
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, str(answer), asked]
        environment = dict(os.environ)
        if stage.mesh is not None and kind == "sim":
            command = simulated.command(command, stage.mesh, stage.grid, library=library)
        elif stage.mesh is not None:
            overlays = {"TT_METAL_OPERATION_TIMEOUT_SECONDS": str(round(limit / 2))}
            environment = process_environment(overlays | silicon_environment(sgdc.overlays()))
        with log.open("wb") as output:
            try:
                code = simulated.run(command, environment, limit, output)
            except simulated.SimulatorError as error:
                return {"error": str(error), "phase": _phase(answer)}
        if answer.is_file():
            return {"phase": _phase(answer), **json.loads(answer.read_text(encoding="utf-8"))}
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip()[:200] for line in reversed(lines) if line.strip()), "it said nothing")
        if last.startswith(simulated.CANNOT_RUN):
            return {"could_not_run": last.removeprefix(simulated.CANNOT_RUN)}
        number = -code if code < 0 else code - 128
        killed = number in set(signal.Signals)
        how = f"signal {signal.Signals(number).name}" if killed else f"status {code}"
        return {"error": f"its process ended with {how}: {last}", "phase": _phase(answer)}


def _phase(answer: Path) -> str:
    said = answer.with_suffix(".phase")
    return said.read_text(encoding="utf-8") if said.is_file() else "starting its process"


def run_body(body: str, kind: str, mesh: Sequence[int] | None, phase: Path) -> dict[str, Any]:
    """In the child: return {"checks"}, {"could_not_run": why} or {"error": one line}. phase: the file that says what is
    being done, for whoever ends this process."""
    try:
        phase.write_text("reading the stage")
        module, _, name = body.partition(":")
        function = getattr(importlib.import_module(module), name)
        phase.write_text("opening the device")
        device = None
        if mesh is not None:
            from ..tt.mesh import MeshShape

            device = MeshShape(*mesh).open(**simulated.opening_options(TRACE_REGION_BYTES))
        phase.write_text("running the stage")
        checks = function(Context(kind, device))
        phase.write_text("closing the device")
        if kind == "n150" and device is not None:  # simulated chips end with their process
            import ttnn

            ttnn.close_mesh_device(device)
        return {"checks": [asdict(check) for check in checks]}
    except CouldNotRun as error:
        return {"could_not_run": str(error)}
    except Exception as error:  # whatever a broken machine raises is the finding
        traceback.print_exc()
        text = " ".join(str(error).split("backtrace:")[0].split())  # without ttnn's return addresses
        return {"error": f"{type(error).__name__}: {text}"[:400]}


if __name__ == "__main__":
    written = Path(sys.argv[1])
    found = run_body(**json.loads(sys.argv[2]), phase=written.with_suffix(".phase"))
    written.write_text(json.dumps(found), encoding="utf-8")
    sys.stderr.flush()
    os._exit(0)  # a simulated device that is not closed takes long to go
