# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""List the programs of a decode step of Llama 3.1 8B with their reads, built on mock meshes.

For each op of a layer, and of what precedes and follows the layers: its cores, the bytes of a chip's DRAM that it
reads, and the bytes that it only moves from one place to another. The whole step's reads stand beside the roofline's.
Programs are the real ones, validated and compiled; nothing executes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from models.llama31_8b.command_line import OneLineParser
from models.llama31_8b.config import preset
from models.llama31_8b.tt.dram_budget import MAX_USERS, budget
from models.llama31_8b.tt.mesh import MeshError, MeshShape
from models.llama31_8b.tt.precision import PRECISIONS, precision_config
from models.llama31_8b.tt.sharding import DECODE_SHARDINGS, ShardedDecodeConfig, ShardingError
from perf.lib.data_file import add_write_option, write
from perf.lib.measuring_process import answered, measure_apart
from runtime_patches import sgdc
from runtime_patches.simulated_n150 import doctor
from runtime_patches.simulated_n150.board.runtime_root import RuntimeRootError
from runtime_patches.simulated_n150.environment import mock_environment, process_environment

from .mesh_memory import BUILD_TIMEOUT_S, MODEL
from .roofline import MESHES

Launch = Mapping[str, Any]


def totals(launches: Sequence[Launch], layers: int) -> dict[str, int]:
    """Return the totals of a step of `layers` layers, from launches of its first layer (not its last, which has other
    formats) and of what surrounds them. dram: bytes read; padding: of them, of banks; moved; ops."""
    found = {}
    for key in ("dram", "padding", "moved"):
        found[key] = sum(launch[key] * (1 if launch["layer"] is None else layers) for launch in launches)
    found["ops"] = sum(1 if launch["layer"] is None else layers for launch in launches)
    return found


def build(mesh: MeshShape, asked: Mapping[str, Any]) -> list[Launch]:
    """Return the launches of a step, in a process of its own; asked: decode_sharding, precision, users, context,
    layers.

    Errors: RuntimeRootError when mock meshes cannot run here; SystemExit when the build fails.
    """
    environment = process_environment(mock_environment(mesh.shape, sgdc.overlays()))
    given = {"mesh": str(mesh), "asked": dict(asked)}
    return measure_apart("perf.footprint.decode_programs", given, environment, BUILD_TIMEOUT_S)


def launches(mesh, asked: Mapping[str, Any]) -> list[Launch]:
    """Return the launches of a step at the last position on a mock mesh, of a model of `layers`."""
    from dataclasses import asdict

    from .mesh_build import build_model
    from .step_programs import record

    users = asked["users"]
    model = build_model(
        mesh, asked["precision"], users, asked["context"], asked["layers"], decode_sharding=asked["decode_sharding"]
    )
    inputs = model.step_inputs([0] * users, [asked["context"] - 1] * users)
    model.decode(inputs, gather_logits=False)  # as it is: ttnn refuses what does not fit
    return [asdict(launch) for launch in record(model, lambda: model.decode(inputs, gather_logits=False))]


def _work(mesh: str, asked: Mapping[str, Any]) -> list[Launch]:
    from runtime_patches.board.environment import real_sfpi
    from runtime_patches.simulated_n150.dispatch import program_room

    plan = MeshShape.parse(mesh)
    device = plan.open(**(program_room() if real_sfpi() is None else {}))
    try:
        return launches(device, asked)
    finally:
        plan.close(device)


def report(mesh: MeshShape, asked: Mapping[str, Any], found: Sequence[Launch]) -> str:
    """Return the table of one build: launches of the first layer and around, and the step beside the roofline."""
    config = preset(MODEL)
    precision = precision_config(asked["precision"], config.num_hidden_layers)
    lines = [
        f"{MODEL} on {mesh}, {asked['decode_sharding']}, {precision.name} precision, {asked['users']} users x "
        f"{asked['context']} positions",
        f"{'':8} {'op':38} {'cores':>5} {'DRAM MB':>9} {'padding':>8} {'moved KB':>9}  programs",
    ]
    layer = [launch for launch in found if launch["layer"] == 0]
    first = found.index(layer[0])
    parts = [("before", [x for x in found[:first] if x["layer"] is None]), ("a layer", layer)]
    parts.append(("after", [x for x in found[first:] if x["layer"] is None]))
    for part, group in parts:
        for launch in group:
            lines.append(
                f"{part:8} {launch['op']:38} {launch['cores']:5} {launch['dram'] / 1e6:9.3f} "
                f"{launch['padding'] / 1e6:8.3f} {launch['moved'] / 1e3:9.1f}  {', '.join(launch['programs'])}"
            )
    step = step_totals(mesh, asked, found)
    lines.append(
        f"{len(layer)} ops per layer, {step['ops']} per step; moved {step['moved'] / 1e6:.3f} MB; read "
        f"{step['dram'] / 1e6:.1f} MB, {step['padding'] / 1e6:.1f} MB of it padding of banks; roofline of these "
        f"{step['roofline'] / 1e6:.1f} MB: {step['dram'] / step['roofline'] - 1:+.2%}; of the numbers alone "
        f"{step['numbers'] / 1e6:.1f} MB: {step['dram'] / step['numbers'] - 1:+.2%}"
    )
    return "\n".join(lines)


def step_totals(mesh: MeshShape, asked: Mapping[str, Any], found: Sequence[Launch]) -> dict[str, int]:
    """Return `totals` of the whole model, with the bytes that the sharding's "roofline" counts, and of its "numbers"
    without padding; launches are of a model of two layers, whose last has the formats of the whole model's last."""
    config = preset(MODEL)
    first, last = ([x for x in found if x["layer"] in wanted] for wanted in ((0, None), (1,)))
    most = totals(first, config.num_hidden_layers - 1)
    ending = totals(last, 1)
    known = budget(
        config,
        mesh,
        precision_config(asked["precision"], config.num_hidden_layers),
        asked["context"],
        asked["users"],
        asked["decode_sharding"],
    )
    counted = {"roofline": known.read_per_step, "numbers": known.numbers_per_step}
    return {key: most[key] + ending[key] for key in most} | counted


def table_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a data file: by build its totals of a step, and how they stand to the roofline's."""
    table = []
    for row in rows:
        step = row["step"]
        layer = sum(launch["layer"] == 0 for launch in row["launches"])
        sizes = {f"{name}_mb": step[name] / 1e6 for name in ("dram", "padding", "moved", "roofline", "numbers")}
        ratios = {f"over_{name}": step["dram"] / step[name] - 1 for name in ("roofline", "numbers")}
        known = {name: row[name] for name in ("mesh", "decode_sharding", "precision", "users", "context")}
        table.append(known | {"ops_per_layer": layer, "ops": step["ops"]} | sizes | ratios)
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 when a build fails; 2 for values that make no sense."""
    parser = OneLineParser(
        prog="python -m perf.footprint.decode_programs",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mesh", nargs="+", default=MESHES, metavar="RxC", help="SP groups x TP chips, or N150")
    parser.add_argument("--decode-sharding", nargs="+", default=DECODE_SHARDINGS, choices=DECODE_SHARDINGS)
    parser.add_argument("--precision", default="performance", choices=PRECISIONS)
    parser.add_argument("--users", type=int, default=1, help="users decoded together (default 1)")
    parser.add_argument("--context", type=int, default=1024, help="cached positions per user (default 1024)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    add_write_option(parser)
    options = parser.parse_args(argv)
    config = preset(MODEL)
    if not 1 <= options.users <= MAX_USERS or options.context < 32 or options.context % 32:
        parser.error(
            f"--users must be 1 to {MAX_USERS} and --context a multiple of 32, got {options.users} and "
            f"{options.context}"
        )
    try:
        meshes = [MeshShape.parse(text) for text in options.mesh]
        for mesh in meshes:
            if "sharded" in options.decode_sharding:
                ShardedDecodeConfig.of(config, mesh, options.users)
    except (MeshError, ShardingError) as error:
        parser.error(str(error))
    if reason := doctor.why_not("mock mesh"):
        parser.error(reason)
    rows = []
    for mesh in meshes:
        for sharding in options.decode_sharding:
            asked = {
                "decode_sharding": sharding,
                "precision": options.precision,
                "users": options.users,
                "context": options.context,
                "layers": 2,
            }
            try:
                found = build(mesh, asked)
            except RuntimeRootError as error:
                print(f"{parser.prog}: error: {error}", file=sys.stderr)
                return 1
            rows.append({"mesh": str(mesh), **asked, "step": step_totals(mesh, asked, found), "launches": found})
            if not options.json:
                if sharding == "sharded":
                    precision = precision_config(options.precision, config.num_hidden_layers)
                    print(ShardedDecodeConfig.of(config, mesh, options.users).describe(precision))
                print(report(mesh, asked, found), flush=True)
    if options.json:
        print(json.dumps({"model": MODEL, "rows": rows}))
    if options.write:
        write(options.write, parser, argv, table_rows(rows))
    return 0


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
