# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Times of a ttnn that was built with Tracy: the worker runs under `python -m tracy`, with a signpost before the timed
run, each layer, and what follows, and the rows of its ops_perf_results between them are the configuration's.

The stock wheel has no Tracy: there `python -m tracy` ends at once, and that is the configuration's reason.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from perf.lib.launch_labels import around
from perf.sweep.configurations import Configuration
from perf.sweep.groups import OP_GROUP, group_of
from perf.sweep.launch import Launch
from perf.sweep.table import DEVICE_OP, GROUP, HEADER, LAYER, OWN, SIGNPOST

# As tt-metal's device perf tests write them.
START, STOP = "start", "stop"
LAYER_POST, LAYERS_OVER = "layer ", "layers over"


def command(worker: Sequence[str], folder: Path) -> list[str]:
    """Return `worker` ([python, -m, module, ...]) profiled, with an ops report under `folder`."""
    return [worker[0], "-m", "tracy", "-r", "-p", "-o", str(folder), *worker[1:]]


def run(launch: Launch) -> None:
    """Run once to compile, and once between signposts. Not from a trace: a replay has no layers."""
    signpost = importlib.import_module("tracy").signpost  # of the wheel; no package of its own for mypy
    launch.before()
    launch.run()
    launch.after()
    launch.compiled()
    launch.before()
    signpost(START)
    with _layers(launch.model, signpost):
        launch.run()
    signpost(STOP)
    launch.after()
    launch.check()


@contextlib.contextmanager
def _layers(model: Any, signpost: Callable[[str], Any]) -> Iterator[None]:
    layers = [] if model is None else list(model.layers)

    def posting(text: str) -> Callable[[], Any]:
        return lambda: signpost(text)

    def nothing() -> None:
        pass

    with contextlib.ExitStack() as stack:
        for index, layer in enumerate(layers):
            stack.enter_context(around(layer, "project_qkv", posting(f"{LAYER_POST}{index}"), nothing))
        for layer in layers[-1:]:
            stack.enter_context(around(layer, "after_attention", nothing, posting(LAYERS_OVER)))
        yield


def rows(folder: Path, configuration: Configuration) -> list[dict[str, object]]:
    """Return the rows of the newest report under `folder`. Errors: ValueError where there is none, or no op between the
    signposts."""
    reports = sorted(folder.rglob("ops_perf_results*.csv"), key=lambda path: path.stat().st_mtime)
    if not reports:
        raise ValueError(f"Tracy left no ops_perf_results CSV in {folder}")
    with reports[-1].open(newline="", encoding="utf-8") as file:
        told = sorted(csv.DictReader(file), key=lambda row: float(row["HOST START TS"] or 0))
    found: list[dict[str, object]] = []
    inside, layer, begun = False, None, False
    for row in told:
        code = row["OP CODE"]
        if row["OP TYPE"] == SIGNPOST:
            if code in (START, STOP):
                inside = code == START
            elif code.startswith(LAYER_POST) or code == LAYERS_OVER:
                layer, begun = None if code == LAYERS_OVER else int(code[len(LAYER_POST) :]), True
        elif inside and row["OP TYPE"] == DEVICE_OP:
            group = group_of(layer, begun) if configuration.family == "decode" else OP_GROUP
            known = {column: row[column] for column in HEADER if column in row and column not in OWN}
            attributes = f"{row.get('ATTRIBUTES') or ''}; profiler=tracy"
            found.append({**known, "ATTRIBUTES": attributes, GROUP: group, LAYER: layer})
    if not found:
        raise ValueError(f"{reports[-1].name} has no device op between the signposts {START} and {STOP}")
    chips = sorted({int(str(row["DEVICE ID"])) for row in found})
    for kept in found:
        kept["DEVICE ID"] = chips.index(int(str(kept["DEVICE ID"])))
    return found
