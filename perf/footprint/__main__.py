# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Say what a model takes of a chip: bytes counted, and memory and kernels as built on mock meshes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from models.llama31_8b.config import PRESETS, preset
from models.llama31_8b.tt.dram_budget import DoesNotFit, budget
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.precision import PRECISIONS, precision_config
from models.llama31_8b.tt.sharding import DECODE_SHARDINGS
from perf.footprint.graph import CAPACITY, CHUNK, MODEL, USERS, MeshMemory
from perf.footprint.kernel_sizes import MESH, PARTS, room_of
from perf.lib.chip import answered, measure_apart
from perf.lib.data_file import Questions, Row, read_rows, table

MESHES = ("1x1", "1x2", "1x4", "2x4", "1x8")
CONTEXTS = (1024, 32768, 65536, 131072)
BUILD_TIMEOUT_S = 1800.0  # compiles some hundred kernels the first time
MB = 1e6


def memory_row(mesh: MeshShape, precision: str, found: MeshMemory) -> Row:
    """Return DRAM of a chip and L1 of a core, in bytes, GB (1e9) and KB (1e3)."""
    worst = max(("decode", "prefill"), key=lambda name: getattr(found, name).largest_program)
    step = getattr(found, worst)
    gb = {name: getattr(found, name) * found.dram_banks for name in ("dram_held", "dram_peak", "dram_size")}
    kb = {f"l1_{name}": found.l1_held + getattr(found, name).l1_peak for name in ("decode", "prefill")}
    kb["l1_size"] = found.l1_size
    operation = step.largest_op.removesuffix("Operation").removesuffix("Device")
    row = {"mesh": str(mesh), "plan": precision, **gb, **kb, "largest_program": step.largest_program}
    row |= {"largest_op": f"{operation} ({worst})", "programs": found.programs}
    row |= {f"{name}_gb": size / 1e9 for name, size in gb.items()}
    return row | {f"{name}_kb": size / 1e3 for name, size in kb.items()}


def build(what: str, mesh: tuple[int, int], **asked: Any) -> Any:
    """Return `_work`'s answer from a process on a mock mesh whose runtime has the patch of SGDC.

    Raises RuntimeRootError when mock meshes cannot run here, and SystemExit when the build fails.
    """
    from runtime_patches import sgdc
    from runtime_patches.simulated_n150.environment import mock_environment, process_environment

    environment = process_environment(mock_environment(mesh, sgdc.overlays())) | {"TT_LOGGER_LEVEL": "fatal"}
    return measure_apart("perf.footprint", {"what": what, "mesh": mesh, "asked": asked}, environment, BUILD_TIMEOUT_S)


def _work(what: str, mesh: Sequence[int], asked: Mapping[str, Any]) -> Any:
    from perf.footprint import kernel_sizes, mesh_build
    from runtime_patches.board.environment import real_sfpi
    from runtime_patches.simulated_n150.dispatch import program_room

    if what == "kernels":
        return kernel_sizes.sizes()
    shape = MeshShape(*mesh)
    device = shape.open(**(program_room() if real_sfpi() is None else {}))
    try:
        return memory_row(shape, asked["precision"], mesh_build.measure(device, **asked))
    finally:
        shape.close(device)


def _needs_mock_meshes() -> None:
    from runtime_patches.simulated_n150 import doctor

    if reason := doctor.why_not("mock mesh"):
        raise ValueError(reason)


def _bytes(options: argparse.Namespace) -> tuple[list[Row], str]:
    """Return a row per combination: what a chip must hold and a decode step read, and the speed that 288 GB/s allow.

    "refused" has the reason where a model does not fit, else None. "read_per_step" is as decode shardings lay weights,
    "numbers_per_step" without the padding of tiles and banks. Raises ValueError for values that make no sense.
    """
    config, users, rows = preset(options.model), options.users, []
    # What tt-metal publishes for Llama 3.1 8B at batch 1.
    speeds = read_rows("published_decode.csv")
    published = {(row["chips"], row["plan"], row["context"]): float(row["tokens_per_s"]) for row in speeds}
    asked = product(options.mesh, options.precision, options.decode_sharding, options.context)
    for name, precision_name, sharding, context in asked:
        mesh, precision = MeshShape.parse(name), precision_config(precision_name, config.num_hidden_layers)
        found, refused = budget(config, mesh, precision, context, users, sharding), None
        try:
            found.check(
                f"{options.model} on {mesh} in {precision.name}, {sharding}, with {users} x {context} positions"
            )
        except DoesNotFit as error:
            refused = str(error)
        known = options.model == MODEL and users == 1 and mesh.sp == 1
        rows.append(
            {"mesh": str(mesh), "sp": mesh.sp, "tp": mesh.tp, "precision": precision.name, "decode_sharding": sharding}
            | {"context": context, "users": users, **asdict(found)}
            | {"held": found.held, "needed": found.needed, "numbers_per_step": found.numbers_per_step}
            | {"bound_tokens_per_s": None if refused else found.tokens_per_s(), "refused": refused}
            | {"published_tokens_per_s": published.get((mesh.chips, precision_name, context)) if known else None}
        )
    reasons = [row["refused"] for row in rows if row["refused"]]
    if len(reasons) == len(rows):
        raise DoesNotFit(reasons[0])
    names = "mesh precision decode_sharding context held needed numbers_per_step read_per_step"
    text = table(rows, f"{names} bound_tokens_per_s published_tokens_per_s")
    return rows, "\n".join([text, *(f"refused: {why}" for why in reasons)])


def _memory(options: argparse.Namespace) -> tuple[list[Row], str]:
    from models.llama31_8b.tt.settings import AttentionSettings

    chunk, context, config = options.chunk, options.context, preset(MODEL)
    if chunk < 32 or chunk & (chunk - 1) or context % chunk:
        raise ValueError(
            f"--chunk must be a power of two of at least 32 that divides --context, got {chunk} and {context}"
        )
    asked = list(product(map(MeshShape.parse, options.mesh), options.precision))
    for mesh, name in asked:
        if options.speculate is not None:
            AttentionSettings("alspec", options.speculate).check(mesh, options.users, context)
        held = budget(config, mesh, precision_config(name, config.num_hidden_layers), context, options.users)
        held.check(f"{MODEL} on {mesh} in {name} with {options.users} x {context} positions")
    _needs_mock_meshes()
    given = {"users": options.users, "capacity": context, "chunk": chunk, "chunk_size": options.speculate}
    rows = [given | build("memory", mesh.shape, precision=name, **given) for mesh, name in asked]
    names = "mesh plan dram_held_gb dram_peak_gb dram_size_gb l1_decode_kb l1_prefill_kb l1_size_kb"
    return rows, table(rows, f"{names} largest_program largest_op programs")


def _kernels(options: argparse.Namespace) -> tuple[list[Row], str]:
    _needs_mock_meshes()
    rows = build("kernels", MESH)
    if too_large := [f"{row['op']} {row['total']}" for row in rows if row["total"] > room_of(row["op"])]:
        raise ValueError(f"bytes beyond the buffer for kernels: {', '.join(too_large)}")
    return rows, table(rows, f"op {' '.join(PARTS)} total share")


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0; 2 with one line for values that make no sense, what cannot fit, or no mock meshes."""
    from runtime_patches.board.runtime_root import RuntimeRootError

    questions = Questions("python -m perf.footprint", __doc__)
    add = questions.add
    counted = add("bytes", _bytes, "what a chip must hold and a decode step read, and the speed that allows")
    counted.add_argument("--model", default=MODEL, choices=sorted(PRESETS))
    counted.add_argument("--context", nargs="+", type=int, default=CONTEXTS, metavar="N", help="cached positions")
    counted.add_argument("--precision", nargs="+", default=("performance", "accuracy"), choices=PRECISIONS)
    memory = add("memory", _memory, "DRAM and L1 of a chip as ttnn allocates them on mock meshes")
    memory.add_argument("--precision", nargs="+", default=("performance",), choices=PRECISIONS)
    memory.add_argument("--users", type=int, default=USERS, help=f"decoded together (default {USERS})")
    text = "of each user, a multiple of --chunk"
    memory.add_argument("--context", type=int, default=CAPACITY, metavar="N", help=text)
    memory.add_argument("--chunk", type=int, default=CHUNK, metavar="N", help=f"of a prefill (default {CHUNK})")
    memory.add_argument("--speculate", type=int, metavar="S", help="between the rows, S tokens at either end")
    counted.add_argument("--decode-sharding", nargs="+", default=("interleaved",), choices=DECODE_SHARDINGS)
    counted.add_argument("--users", type=int, default=1, help="decoded together (default 1)")
    for question in (counted, memory):
        text = "SP groups x TP chips, or N150"
        question.add_argument("--mesh", nargs="+", default=MESHES, metavar="RxC", help=text)
    add("kernels", _kernels, "what each op's program takes of the 69 KB that a core keeps for kernels by default")
    return questions.run(argv, (ValueError, RuntimeRootError))


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
