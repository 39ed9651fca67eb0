# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Runs configurations, each in a process of its own, and appends what became of them.

A configuration that refuses, fails, crashes or hangs is a row with its reason, and the next one runs.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from models.llama31_8b import simulated
from models.llama31_8b.tt.sharding import GRID
from perf.lib.chip import Chip
from perf.sweep.configurations import Configuration
from perf.sweep.table import FAILED, HUNG, NOT_RUN, PASS, Block, Table

REASON_CHARACTERS = 400
LARGE_VOCABULARY = 8192  # more logits than these are spread over the chip
# What tests put in place of a worker: (command, environment) of a configuration's process.
Start = Callable[[Configuration, Path], tuple[list[str], Mapping[str, str]]]


def grid_of(configuration: Configuration) -> str:
    """Return the simulated chip's cores: as few as the op asks for, since every one is executed, else the chip's 8x8.

    Raises ValueError where it asks for more than a chip has.
    """
    family, get = configuration.family, configuration.get
    whole = f"{GRID[0]}x{GRID[1]}"
    if family in ("flash_decode", "tree_attention") and get("workers") and get("variant") != "stock":
        # A rank of the pair has two more: one puts results together, one exchanges.
        ranks, more = (2, 2) if get("variant") == "speculative" else (1, 0)
        cores = get("kv_heads") * get("users", 1) * get("workers") + more
        columns = min(GRID[0], 1 << (cores - 1).bit_length())
        rows = ranks << (-(-cores // columns) - 1).bit_length()  # of each rank a power of two
        if rows > GRID[1]:
            raise ValueError(f"{ranks} x {cores} cores are more than the {whole} of a chip")
        return f"{columns}x{rows}"
    needs_whole = {
        "matmul": get("layout") == "dram_sharded" or get("cores", 1) > 1,
        "sampling": get("vocab", 0) > LARGE_VOCABULARY,
        "flash_decode": not get("workers"),
        "tree_attention": not get("workers"),
        "decode": get("model") != "tiny",
        "prefill": get("model") != "tiny",
        "decode_op": True,
    }
    if needs_whole.get(family):
        return whole
    return {"decode": "4x1", "prefill": "4x2", "collective": "4x2", "long_rows": "4x4"}.get(family, "1x1")


def process_of(source: str, configuration: Configuration, answer: Path) -> tuple[list[str], Mapping[str, str]]:
    """Return the worker of a configuration: on simulated chips, which run as silicon does (fast dispatch), or
    on the boards of this machine. Raises ValueError where there are too few."""
    from runtime_patches import sgdc
    from runtime_patches.board.environment import process_environment, silicon_environment, visible_boards

    asked = json.dumps([configuration.family, dict(configuration.options)])
    command = [sys.executable, "-m", "perf.sweep.launches", str(answer), source, asked]
    plan = configuration.mesh
    if source == "sim":
        mesh = plan.shape if plan.chips > 1 else None
        return command, Chip(grid_of(configuration), mesh, gated=True, timed=True).environment()
    plan.check_board(len(visible_boards()))
    return command, process_environment(silicon_environment(sgdc.overlays()))


def sweep(
    configurations: Sequence[Configuration],
    source: str,
    table: Table,
    *,
    timeout_s: float,
    log: Path | None = None,
    start: Start | None = None,
) -> list[Block]:
    """Run what `table` lacks, and append what became of each when it is there. log: of the processes."""
    left = [c for c in configurations if (c.name, source) not in table.done]
    if len(left) < len(configurations):
        print(f"{len(configurations) - len(left)} of {len(configurations)} configurations are in {table.path} already")
    found = []
    for configuration in left:
        block = _measured(configuration, source, timeout_s, log, start or partial(process_of, source))
        table.append(block)
        found.append(block)
        told = f"{len(block.rows)} programs" if block.status == PASS else block.reason
        print(f"[{len(found)}/{len(left)}] {block.status} {block.name}: {told}", flush=True)
    return found


def _measured(configuration: Configuration, source: str, timeout_s: float, log: Path | None, start: Start) -> Block:
    name = configuration.name
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "outcome.json"
        try:
            command, environment = start(configuration, answer)
        except ValueError as error:
            return Block(name, source, NOT_RUN, f"{type(error).__name__}: {error}")
        output = Path(folder) / "output.log"
        try:
            with output.open("wb") as written:
                status = simulated.run(command, environment, timeout_s, written)
            why = f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        except simulated.SimulatorError as error:
            status, why = -1, str(error)
        text = output.read_text(errors="replace")
        if log is not None:
            with log.open("a", encoding="utf-8") as whole:
                whole.write(f"=== {name}\n{text}\n")
        if not answer.exists():
            return Block(name, source, HUNG if status < 0 else FAILED, f"{why}{_last_words(text)}")
        told = json.loads(answer.read_text())  # a device that hangs when it is closed has been measured all the same
        return Block.make(name, source, told["status"], told["reason"][:REASON_CHARACTERS], told["rows"])


def _last_words(text: str) -> str:
    """Return the line that says what was wrong: the last error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"\w*(Error|Exception|TT_FATAL)\b", line)]
    last = (errors or lines)[-1:]
    return f": {last[0][:REASON_CHARACTERS]}" if last else ""
