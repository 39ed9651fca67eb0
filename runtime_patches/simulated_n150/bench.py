# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure how fast a simulated mesh runs: `python -m runtime_patches.simulated_n150.bench`.

Two chips of one core each, joined by a cable, the stock fabric on it, slow dispatch. Each program's line has the
simulated cycles of both chips' common clock, cycles per second, and cycles per second of the simulator's own processor
time. Seconds include the host's, and a busy machine shows more of them. Opening is timed in a second process: the
first may compile firmware and kernels.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from runtime_patches.simulated_n150.board.command_line import OneLineParser, run_command

GRID, MESH = "1x1", (1, 2)
COLUMNS = 512
TIMEOUT_SECONDS = 900
WORKER = "--worker"  # how the measuring process is started: with the number of repeats


def rates(cycles: int, seconds: float, processor_seconds: float) -> str:
    """Return a line of the table; seconds of 0, which a clock of 10 ms may give, print no rate."""
    each = [f"{cycles / spent:>10,.0f}" if spent > 0 else f"{'-':>10}" for spent in (seconds, processor_seconds)]
    return f"{cycles:>10,} {seconds:>9.2f} {each[0]} {each[1]}"


def measure(repeats: int) -> None:
    """Print a line per program, in a process of the simulated mesh."""
    began = time.perf_counter()
    import torch
    import ttnn

    from runtime_patches.simulated_n150.dispatch import mesh_options
    from runtime_patches.simulated_n150.links import Links

    imported = time.perf_counter()
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*MESH), **mesh_options("slow"))
    print(f"import {imported - began:.2f} s, open {time.perf_counter() - imported:.2f} s", flush=True)
    if not repeats:
        return

    tensor = ttnn.from_torch(
        torch.ones(MESH[0] * MESH[1], 1, 32, COLUMNS),
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0),
        device=mesh,
    )

    def read() -> None:
        for part in ttnn.get_device_tensors(tensor):
            ttnn.to_torch(part)

    programs: dict[str, Callable] = {
        "ttnn.all_gather": lambda: ttnn.all_gather(tensor, dim=3, cluster_axis=1),
        "reading back": read,
        "ttnn.add": lambda: ttnn.add(tensor, tensor),
    }
    links, simulator = Links(os.getpid()), _simulator()
    print(f"{'program':<20} {'cycles':>10} {'seconds':>9} {'cycles/s':>10} {'cycles/processor s':>10}")
    for name, program in programs.items():
        program()  # compiled before it is measured
        ttnn.synchronize_device(mesh)
        before = links.cycle(), time.perf_counter(), _processor_seconds(simulator)
        for _ in range(repeats):
            program()
        ttnn.synchronize_device(mesh)
        after = links.cycle(), time.perf_counter(), _processor_seconds(simulator)
        cycles, seconds, processor_seconds = (b - a for a, b in zip(before, after, strict=True))
        print(f"{name:<20} {rates(int(cycles), seconds, processor_seconds)}", flush=True)
    ttnn.close_mesh_device(mesh)


def _simulator() -> Path:
    """Return the process that hosts the chips: the descendant of this one that has worked longest."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if b"simulator.startup" in (process / "cmdline").read_bytes() and _is_descendant(process):
                    found.append(process)
            except OSError:  # it ended meanwhile
                continue
    return max(found, key=_processor_seconds)


def _is_descendant(process: Path) -> bool:
    number = int(process.name)
    while number > 1:
        if number == os.getpid():
            return True
        number = int(_stat(Path(f"/proc/{number}"))[1])
    return False


def _stat(process: Path) -> list[str]:
    """Return the fields of /proc/N/stat from the process's state on."""
    return (process / "stat").read_text().rsplit(")", 1)[1].split()


def _processor_seconds(process: Path) -> float:
    fields = _stat(process)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(arguments: list[str] | None = None) -> int:
    parser = OneLineParser(
        prog="python -m runtime_patches.simulated_n150.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeats", type=int, default=20, metavar="N", help="runs of each program (default 20)")
    given = parser.parse_args(arguments)
    if given.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {given.repeats}")
    from runtime_patches.simulated_n150.environment import process_environment, simulated_environment

    variables = process_environment(simulated_environment(GRID, mesh=MESH))
    print(f"a mesh of {MESH[0]}x{MESH[1]} chips of {GRID} cores", flush=True)
    for repeats in (0, given.repeats):
        command = [sys.executable, "-m", "runtime_patches.simulated_n150.bench", WORKER, str(repeats)]
        ended = subprocess.run(command, env=variables, stderr=subprocess.DEVNULL, timeout=TIMEOUT_SECONDS, check=False)
        if ended.returncode:
            print(f"the measuring process ended with {ended.returncode}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == [WORKER]:
        measure(int(sys.argv[2]))
    else:
        sys.exit(run_command("python -m runtime_patches.simulated_n150.bench", main))
