# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Show DRAM and L1 of a chip with its part of Llama 3.1 8B, as ttnn allocates them on mock meshes.

Where perf.footprint.roofline counts bytes, this builds the whole model, a decode step and a prefill chunk on mock
meshes: every tensor gets its address and every program its circular buffers, and nothing executes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.llama31_8b.config import preset
from models.llama31_8b.tt.dram_budget import DoesNotFit, budget
from models.llama31_8b.tt.mesh import MeshError, MeshShape
from models.llama31_8b.tt.precision import PRECISIONS, precision_config
from models.llama31_8b.tt.settings import check_speculation
from perf.lib.data_file import add_write_option, write
from runtime_patches import sgdc
from runtime_patches.simulated_n150 import doctor
from runtime_patches.simulated_n150.board.runtime_root import RuntimeRootError
from runtime_patches.simulated_n150.environment import mock_environment, process_environment

from .roofline import MESHES

MODEL = "llama-3.1-8b"
USERS, CAPACITY, CHUNK = 32, 1024, 512
# What programs take in L1 by node of a captured graph: the mark of those that lie in a tensor's memory.
PROGRAM_BUFFERS = {
    "circular_buffer_allocate": "globally_allocated",
    "dataflow_buffer_allocate": "borrows_memory",
    "scratchpad_allocate": None,
}
BUILD_TIMEOUT_S = 1800.0  # compiles some hundred kernels the first time


@dataclass(frozen=True)
class StepMemory:
    """What one step takes while it runs, beyond what the model holds. Bytes.

    largest_program: circular and dataflow buffers and scratchpads of a core, in the program with the most.
    largest_op: the operation of that program. l1_tensors, l1_peak: tensors, and all of these together, in a
    core at once. dram_peak: tensors of a DRAM bank at once.
    """

    largest_program: int
    largest_op: str
    l1_tensors: int
    l1_peak: int
    dram_peak: int


@dataclass(frozen=True)
class MeshMemory:
    """One chip of a mesh with the whole model. Bytes.

    dram_held, l1_held: weights, tables and cache of a DRAM bank; constants in the L1 of a core. dram_size,
    l1_size: of a bank; what a core has for tensors and circular buffers. programs: made for both steps.
    logits: shapes of both.
    """

    dram_held: int
    dram_size: int
    dram_banks: int
    l1_held: int
    l1_size: int
    decode: StepMemory
    prefill: StepMemory
    programs: int
    logits: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def l1_peak(self) -> int:
        """The most of a core's L1 in use at once."""
        return self.l1_held + max(self.decode.l1_peak, self.prefill.l1_peak)

    @property
    def dram_peak(self) -> int:
        """The most of a DRAM bank in use at once."""
        return self.dram_held + max(self.decode.dram_peak, self.prefill.dram_peak)

    @classmethod
    def of_dict(cls, data: dict[str, Any]) -> MeshMemory:
        """Return the object that dataclasses.asdict made, after JSON."""
        steps = {name: StepMemory(**data[name]) for name in ("decode", "prefill")}
        return cls(**{**data, **steps})


def peak_per_bank(graph: Iterable[dict[str, Any]], kind: str) -> int:
    """Return the most bytes of a bank that buffers of that kind ("DRAM", "L1") took at once in a captured graph."""
    most = now = 0
    for node in graph:
        if node["node_type"] in ("buffer_allocate", "buffer_deallocate") and node["params"]["type"] == kind:
            size = int(node["params"]["max_size_per_bank"])
            now += size if node["node_type"] == "buffer_allocate" else -size
            most = max(most, now)
    return most


def largest_program(graph: Iterable[dict[str, Any]]) -> tuple[int, str]:
    """Return the bytes of the program with the most buffers of its own in a captured graph, and its operation, such as
    MatmulDeviceOperation; (0, "") when there is none. Buffers in a tensor's memory do not count; those of different
    cores are added up, so that no core has more."""
    open_calls: list[str] = []
    size, most = 0, (0, "")
    for node in graph:
        kind, params = node["node_type"], node["params"]
        if kind == "function_start":
            open_calls.append(params["name"])
        elif kind == "function_end":
            open_calls.pop()
        elif kind == "circular_buffer_deallocate_all":  # stands before the buffers of each program
            size = 0
        elif kind in PROGRAM_BUFFERS and not int(params.get(PROGRAM_BUFFERS[kind] or "", 0)):
            size += int(params["size"])
            most = max(most, (size, next((name for name in reversed(open_calls) if "::" not in name), "")))
    return most


def build(
    mesh: MeshShape, precision: str, users: int, capacity: int, chunk: int, chunk_size: int | None = None
) -> MeshMemory:
    """Run `mesh_build.measure` in a process of its own, on a mock mesh whose runtime has the patch of SGDC (static
    graph, dynamic concurrency). chunk_size: of attention-level speculation, None for exact attention.

    Raises RuntimeRootError when mock meshes cannot run here, and RuntimeError when the build fails.
    """
    environment = process_environment(mock_environment(mesh.shape, sgdc.overlays()))
    command = [
        sys.executable,
        "-m",
        "perf.footprint.mesh_build",
        str(mesh),
        precision,
        str(users),
        str(capacity),
        str(chunk),
        *([] if chunk_size is None else [str(chunk_size)]),
    ]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        command,
        env=environment,
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"building on {mesh} ended with {done.returncode}: {done.stdout[-2000:]}")
    return MeshMemory.of_dict(json.loads(done.stdout.splitlines()[-1]))


def row(mesh: MeshShape, precision: str, found: MeshMemory) -> dict[str, Any]:
    """Return a line of the table: DRAM of a chip, L1 of a core, in bytes."""
    worst = max(("decode", "prefill"), key=lambda name: getattr(found, name).largest_program)
    step = getattr(found, worst)
    return {
        "mesh": str(mesh),
        "plan": precision,
        "dram_held": found.dram_held * found.dram_banks,
        "dram_peak": found.dram_peak * found.dram_banks,
        "dram_size": found.dram_size * found.dram_banks,
        "l1_decode": found.l1_held + found.decode.l1_peak,
        "l1_prefill": found.l1_held + found.prefill.l1_peak,
        "l1_size": found.l1_size,
        "largest_program": step.largest_program,
        "largest_op": f"{step.largest_op.removesuffix('Operation').removesuffix('Device')} ({worst})",
        "programs": found.programs,
    }


def table_rows(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a data file: `row`s, with DRAM in GB (1e9) and L1 in KB (1e3) too."""
    sizes = {"dram_held": 1e9, "dram_peak": 1e9, "dram_size": 1e9, "l1_decode": 1e3, "l1_prefill": 1e3, "l1_size": 1e3}
    units = {1e9: "gb", 1e3: "kb"}
    return [line | {f"{name}_{units[unit]}": line[name] / unit for name, unit in sizes.items()} for line in lines]


def _print_row(line: dict[str, Any]) -> None:
    print(
        f"{line['mesh']:5} {line['plan']:12} {line['dram_held'] / 1e9:9.3f} {line['dram_peak'] / 1e9:9.3f} "
        f"{line['dram_size'] / 1e9:9.3f} {line['l1_decode'] / 1e3:10.1f} {line['l1_prefill'] / 1e3:10.1f} "
        f"{line['l1_size'] / 1e3:8.1f} {line['largest_program'] / 1e3:8.1f}  {line['largest_op']:22} "
        f"{line['programs']:8}",
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 when a build fails; 2 for values that make no sense or a plan that cannot fit."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.footprint.mesh_memory", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--mesh", nargs="+", default=MESHES, metavar="RxC", help="SP groups x TP chips, or N150")
    parser.add_argument("--precision", nargs="+", default=("performance",), choices=PRECISIONS)
    parser.add_argument("--users", type=int, default=USERS, help=f"users decoded together (default {USERS})")
    parser.add_argument(
        "--context",
        type=int,
        default=CAPACITY,
        metavar="N",
        help=f"cached positions per user, a multiple of --chunk (default {CAPACITY})",
    )
    parser.add_argument(
        "--chunk", type=int, default=CHUNK, metavar="N", help=f"tokens of a prefill chunk (default {CHUNK})"
    )
    parser.add_argument(
        "--speculate",
        type=int,
        metavar="S",
        help="decode with attention-level speculation between the rows, S tokens at either end (default: exact)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    add_write_option(parser)
    options = parser.parse_args(argv)
    if options.chunk < 32 or options.chunk & (options.chunk - 1) or options.context % options.chunk:
        parser.error(
            f"--chunk must be a power of two of at least 32 that divides --context, got {options.chunk} and "
            f"{options.context}"
        )
    config = preset(MODEL)
    try:
        meshes = [MeshShape.parse(name) for name in options.mesh]
        for mesh in meshes:
            if options.speculate is not None:
                check_speculation(mesh, options.users, options.context, options.speculate, 0.1)
            for name in options.precision:
                plan = precision_config(name, config.num_hidden_layers)
                held = budget(config, mesh, plan, options.context, options.users)
                held.check(f"{MODEL} on {mesh} in {name} with {options.users} x {options.context} positions")
    except (MeshError, DoesNotFit, ValueError) as error:
        parser.error(str(error))
    if reason := doctor.why_not("mock mesh"):
        parser.error(reason)
    if not options.json:
        print(
            f"{MODEL}, all {config.num_hidden_layers} layers, {options.users} users x "
            f"{options.context} positions, chunk {options.chunk}; GB of DRAM per chip, KB of L1 per core"
        )
        print(
            f"{'mesh':5} {'plan':12} {'DRAM held':>9} {'peak':>9} {'of':>9} {'L1 decode':>10} "
            f"{'L1 prefill':>10} {'of':>8} {'largest':>8}  {'program':22} {'programs':>8}",
            flush=True,
        )
    lines = []
    for mesh in meshes:
        for name in options.precision:
            try:
                found = build(mesh, name, options.users, options.context, options.chunk, options.speculate)
            except (RuntimeRootError, RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{parser.prog}: error: {error}", file=sys.stderr)
                return 1
            lines.append(row(mesh, name, found))
            if not options.json:
                _print_row(lines[-1])
    if options.json:
        print(
            json.dumps(
                {
                    "model": MODEL,
                    "users": options.users,
                    "context": options.context,
                    "chunk": options.chunk,
                    "rows": lines,
                }
            )
        )
    if options.write:
        write(options.write, parser, argv, table_rows(lines), users=options.users, chunk_size=options.speculate)
    return 0


if __name__ == "__main__":
    sys.exit(main())
