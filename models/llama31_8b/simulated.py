# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Start programs on simulated N150 by the simulator's command. Nothing of the simulator is imported.

A program that was started so is on simulated chips as it would be on boards; `on_simulated_chips` tells it apart where
sizes differ.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
SIMULATOR = "runtime_patches.simulated_n150"
TRACE_REGION_BYTES = 4 << 20
BOARD_TRACE_BYTES = 64 << 20  # of DRAM for traces: of decode steps and whole prefill chunks
# L1 of a core for programs in flight. ttnn's default on boards, 69 KB, is too small for token trees whose guess reads
# by a budget (docs/results/memory.md). The simulator's compiler makes larger kernels than a board's.
BOARD_KERNEL_BYTES = 96 * 1024
KERNEL_BYTES = 256 * 1024
LOST_S = 30.0  # how long a program may go on after one of its simulators has ended, for instance to close a device


class SimulatorError(RuntimeError):
    """A simulated chip is gone, or a program on simulated chips took too long."""


def on_simulated_chips() -> bool:
    """Return whether ttnn opens simulated chips in this process."""
    return bool(os.environ.get("TT_METAL_SIMULATOR"))


def opening_options() -> dict[str, int]:
    """Return the keyword arguments of `MeshShape.open` for this process's boards or simulated chips, which run small
    models."""
    if on_simulated_chips():
        return {"trace_region_size": TRACE_REGION_BYTES, "kernel_bytes": KERNEL_BYTES}
    return {"trace_region_size": BOARD_TRACE_BYTES, "kernel_bytes": BOARD_KERNEL_BYTES}


def command(
    program: Sequence[str],
    mesh: tuple[int, int],
    grid: str,
    dispatch: str = "fast",
    library: str | None = None,
    python: str = sys.executable,
) -> list[str]:
    """Return the command line that runs `program` on a mesh of simulated chips of `grid` (columns x rows) cores.

    The chips' runtime has the compute gate. library: a ttsim library that simulates the one chip. python: what runs the
    simulator's command.
    """
    rows, columns = mesh
    several = ["--mesh", f"{rows}x{columns}"] if rows * columns > 1 else []
    started = [python, "-m", SIMULATOR, "run", "--patch", "runtime_patches.sgdc"]
    started += ["--grid", grid, "--dispatch", dispatch]
    started += [] if library is None else ["--simulator", library]
    return [*started, *several, "--", *program]


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    limit_s: float = float("inf"),
    log: IO[bytes] | None = None,
    talks: bool = True,
) -> int:
    """Run a `command` to its end and return its exit code.

    ttnn waits forever for a chip whose simulator is gone, so simulators are watched.

    Args:
        command: As of `command`, or any other.
        environment: Of the process, by default this one's.
        limit_s: Seconds that it may take.
        log: A file for all output; the command then has a session of its own, and none of its processes outlives it.
            Without it the terminal's output is the command's.
        talks: Without a log: the terminal's input and Ctrl-C are the command's too. Otherwise Ctrl-C asks the program
            alone to end, not its compilers and simulators, whose ends it would report; once more ends all of them.

    Raises:
        SimulatorError: After all processes of the command were ended, for a simulator that ended before its program,
            and for the limit.
    """
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    apart: dict[str, Any] = {}
    if log is not None:
        apart = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT, "start_new_session": True}
    elif not talks:
        apart = {"stdin": subprocess.DEVNULL, "start_new_session": True}
        for number in (signal.SIGTERM, signal.SIGHUP):  # of a session of its own, which does not get them
            signal.signal(number, _end)
    process = subprocess.Popen(command, env={**(environment or os.environ), "PYTHONPATH": path}, **apart)
    began, lost, asked = time.monotonic(), None, False
    simulators: set[int] = set()
    try:
        while True:
            try:
                return process.wait(1)
            except subprocess.TimeoutExpired:
                pass
            except KeyboardInterrupt:
                if log is None and talks:
                    return process.wait()  # the program has it too, and ends by itself
                program = next(iter(_descendants(process.pid)), None)
                if log is not None or asked or program is None:
                    raise
                asked = True
                print("\nends after what is being computed; Ctrl-C once more ends it now", file=sys.stderr)
                os.kill(program, signal.SIGINT)
            now, below = time.monotonic(), _descendants(process.pid)
            simulators |= {pid for pid, line in below.items() if f"{SIMULATOR}.simulator" in line}
            gone = [pid for pid in simulators if pid not in below]
            lost = (lost or now) if gone else None
            if lost is not None and now - lost > LOST_S:
                raise SimulatorError(f"the process {gone[0]} of a simulated chip ended before the program did")
            if now - began > limit_s:
                raise SimulatorError(f"the program did not end within {limit_s:g} s")
    finally:
        if process.poll() is None:
            for pid in (*_descendants(process.pid), process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
        if log is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def _descendants(pid: int) -> dict[int, str]:
    """Return the command lines of the running processes below `pid`; those that have ended are left out."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(stat.parent.name))
    found, todo = {}, [pid]
    while todo:
        for child in children.get(todo.pop(), ()):
            todo.append(child)
            with contextlib.suppress(OSError):
                found[child] = Path(f"/proc/{child}/cmdline").read_text(errors="replace")
    return found
