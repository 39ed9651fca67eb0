# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure the parts of a draft round with layer-parallel drafting on simulated chips.

Cycles of the parts on TP groups of simulated chips at tiny shapes, from traces: a draft step with the attentions
of all its layers at once against one layer after another, calibration, the target's step with verification and commit.
The simulator's cost model is a floor, and link times are guesses: read ratios of one run, not times. `python -m
perf.projection drafts` projects rounds of Llama 3.2 1B and Llama 3.1 8B.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from perf.lib.data_file import add_write_option, write
from perf.lib.measuring_process import answered, measure_apart

GRID = "4x2"  # sums over a TP group take eight cores
SIMULATED = (1, 2)
Parts = Mapping[str, Mapping[str, int]]


def run(chips: int, shape: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Measure in a process of its own. Errors: SystemExit with what went wrong there."""
    from runtime_patches import sgdc
    from runtime_patches.profiling.timeline import TIMELINE_VARIABLES, timeline_overlays
    from runtime_patches.simulated_n150.environment import process_environment, simulated_environment

    overlays = {**sgdc.overlays(), **timeline_overlays()}
    mesh = (1, chips) if chips > 1 else None
    variables = simulated_environment(GRID, overlays, mesh=mesh, dispatch="fast") | TIMELINE_VARIABLES
    asked = {"chips": chips, "shape": dict(shape)}
    return measure_apart("perf.steps.bench_device_speculation", asked, process_environment(variables))


def _work(chips: int, shape: Mapping[str, int]) -> dict[str, dict[str, int]]:
    from models.llama31_8b.tt.mesh import MeshShape
    from perf.steps.device_speculation_step import Shape, measure
    from runtime_patches.simulated_n150.dispatch import opening_options, program_room

    shape_of_mesh = MeshShape(1, chips)
    mesh = shape_of_mesh.open(**program_room(), **opening_options("fast"))
    parts = measure(mesh, Shape(**shape))
    shape_of_mesh.close(mesh)
    return parts


def report(found: Mapping[int, Parts], shape: Mapping[str, int]) -> str:
    """Return the cycles of each part by number of chips, and the layer-parallel draft step against the sequential
    one."""
    lines = [
        f"a draft of {shape['layers']} layers in one group, {shape['heads']} heads of 64, hidden "
        f"{32 * shape['heads']}; {shape['drafted']} drafted tokens after {shape['context']} cached ones",
        f"{'cycles (programs), fast dispatch, from traces':46}" + "".join(f"{f'1x{chips}':>16}" for chips in found),
    ]
    for name in next(iter(found.values())):
        cells = (f"{parts[name]['cycles']} ({parts[name]['programs']})" for parts in found.values())
        lines.append(f"{name:46}" + "".join(f"{cell:>16}" for cell in cells))
    lines.append(
        f"{'layer-parallel over sequential draft step':46}"
        + "".join(f"{f'{speedup(parts):.2f}x':>16}" for parts in found.values())
    )
    return "\n".join(lines)


def table_rows(found: Mapping[int, Parts]) -> list[dict[str, Any]]:
    """Return the rows of a data file: by part its cycles and programs on each number of chips."""
    names = next(iter(found.values()))
    return [
        {"part": name} | {f"{key}_{chips}": parts[name][key] for chips, parts in found.items() for key in parts[name]}
        for name in names
    ]


def speedup(parts: Parts) -> float:
    """Return the speed-up of the draft step. Errors: ValueError for a part that took no time, which cannot have been
    measured."""
    by_kind = {name.rpartition(", ")[2]: part["cycles"] for name, part in parts.items() if ", " in name}
    if min(by_kind.values()) <= 0:
        raise ValueError(f"not measurable: {dict(parts)}")
    return by_kind["sequential"] / by_kind["layer-parallel"]


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0; 2 for values that make no sense, before any work."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.steps.bench_device_speculation", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--simulate",
        type=int,
        nargs="+",
        default=list(SIMULATED),
        choices=(1, 2, 4),
        metavar="CHIPS",
        help="TP groups to simulate: 1, 2, 4 chips (default 1 2, minutes each)",
    )
    parser.add_argument("--layers", type=int, default=2, help="of the simulated draft, one group (default 2)")
    add_write_option(parser, "--json")
    options = parser.parse_args(argv)
    if not 2 <= options.layers <= 4:
        parser.error(f"--layers must be 2 to 4, got {options.layers}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    shape: dict[str, Any] = {
        "layers": options.layers,
        "heads": max([2, *options.simulate]),
        "drafted": 3,
        "context": 64,
    }
    found = {chips: run(chips, shape) for chips in options.simulate}
    if options.write:
        speedups = {f"speedup_{chips}": speedup(parts) for chips, parts in found.items()}
        write(options.write, parser, argv, table_rows(found), shape=shape, **speedups)
    print(report(found, shape))
    return 0


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
