# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Started by runner.py: runs the body of one stage with its device open, and writes the answer as JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .context import Context
from .expectations import Expectations
from .findings import CouldNotRun


def run(body: str, kind: str, mesh: Sequence[int] | None, recording: bool, phase: Path) -> dict[str, Any]:
    """Return {"checks", "recorded"}, {"could_not_run": why} or {"error": one line}. phase: the file that says what is
    being done, for whoever ends this process."""
    try:
        phase.write_text("reading the stage")
        module, _, name = body.partition(":")
        function = getattr(importlib.import_module(module), name)
        phase.write_text("opening the device")
        device = None if mesh is None else _open(kind, mesh)
        context = Context(kind, device, None if recording else Expectations.read(), recording)
        phase.write_text("running the stage")
        checks = function(context)
        answer = {"checks": [asdict(check) for check in checks], "recorded": context.recorded}
        phase.write_text("closing the device")
        _close(kind, device)
        return answer
    except CouldNotRun as error:
        return {"could_not_run": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a broken machine raises is the finding
        traceback.print_exc()
        return {"error": _one_line(error)}


def _one_line(error: Exception) -> str:
    """Return a message without ttnn's return addresses, at most 400 characters of it."""
    text = " ".join(str(error).split("backtrace:")[0].split())
    return f"{type(error).__name__}: {text}"[:400]


def _open(kind: str, mesh: Sequence[int]):
    from models.llama31_8b.tt.mesh import MeshShape

    if kind == "n150":
        return MeshShape(*mesh).open(trace_region_size=1 << 22)
    from runtime_patches.simulated_n150.dispatch import opening_options, program_room

    return MeshShape(*mesh).open(**program_room(), **opening_options("fast"))


def _close(kind: str, device) -> None:
    """Close boards; simulated chips end with their process."""
    if kind == "n150" and device is not None:
        import ttnn

        ttnn.close_mesh_device(device)


if __name__ == "__main__":
    answer = Path(sys.argv[1])
    found = run(**json.loads(sys.argv[2]), phase=answer.with_suffix(".phase"))
    answer.write_text(json.dumps(found), encoding="utf-8")
    sys.stderr.flush()
    os._exit(0)  # a simulated device that is not closed takes long to go
