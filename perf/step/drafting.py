# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure the parts of a draft round with layer-parallel drafting on simulated chips.

Cycles of the parts on TP groups of simulated chips at tiny shapes, from traces: a draft step with the attentions
of all its layers at once against one layer after another, calibration, the target's step with verification and commit.
The simulator's cost model is a floor, and link times are guesses: read ratios of one run, not times. `python -m
perf.projection drafts` projects rounds of Llama 3.2 1B and Llama 3.1 8B.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perf.lib.chip import Chip
from perf.lib.data_file import add_write_option, write
from perf.lib.measuring_process import measure_apart
from perf.lib.tables import markdown
from runtime_patches.board.command_line import OneLineParser

GRID = "4x2"  # sums over a TP group take eight cores
SIMULATED = (1, 2)
Parts = Mapping[str, Mapping[str, int]]


def run(chips: int, shape: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Measure in a process of its own: see `device.measure_drafting`. Raises SystemExit with what went wrong there."""
    chip = Chip(GRID, (1, chips) if chips > 1 else None, gated=True, timed=True)
    asked = {"chips": chips, "shape": dict(shape)}
    return measure_apart("perf.step", {"work": "drafting", "asked": asked}, chip.environment())


def work(chips: int, shape: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Measure in this process."""
    from perf.step.device import measure_drafting

    with Chip(GRID, (1, chips), timed=True).opened() as mesh:
        return measure_drafting(mesh, **shape)


def table_rows(found: Mapping[int, Parts]) -> list[dict[str, Any]]:
    """Return the rows of a data file: by part its cycles and programs on each number of chips."""
    names = next(iter(found.values()))
    return [
        {"part": name} | {f"{key}_{chips}": parts[name][key] for chips, parts in found.items() for key in parts[name]}
        for name in names
    ]


def speedup(parts: Parts) -> float:
    """Return the speed-up of the draft step."""
    by_kind = {name.rpartition(", ")[2]: part["cycles"] for name, part in parts.items()}
    return by_kind["sequential"] / by_kind["layer-parallel"]


def main(argv: Sequence[str]) -> int:
    """Return 0; 2 for values that make no sense, before any work."""
    parser = OneLineParser(prog="python -m perf.step drafting", description=(__doc__ or "").splitlines()[0])
    text = "TP groups to simulate: 1, 2, 4 chips (default 1 2, minutes each)"
    simulated: dict[str, Any] = {
        "type": int,
        "nargs": "+",
        "choices": (1, 2, 4),
        "default": list(SIMULATED),
        "metavar": "CHIPS",
    }
    parser.add_argument("--simulate", **simulated, help=text)
    parser.add_argument("--layers", type=int, default=2, help="of the simulated draft, one group (default 2)")
    add_write_option(parser, "--json")
    options = parser.parse_args(argv)
    if not 2 <= options.layers <= 4:
        parser.error(f"--layers must be 2 to 4, got {options.layers}")
    shape = {"layers": options.layers, "heads": max([2, *options.simulate]), "drafted": 3, "context": 64}
    found = {chips: run(chips, shape) for chips in options.simulate}
    rows = table_rows(found)
    speedups = {f"speedup_{chips}": speedup(parts) for chips, parts in found.items()}
    if options.write:
        write(options.write, parser, argv, rows, shape=shape, **speedups)
    print(markdown([shape]), markdown(rows), markdown([speedups]), sep="\n\n")
    return 0
