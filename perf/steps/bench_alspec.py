# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure what attention-level speculation gains in a decode step of two simulated chips.

A few Llama layers decode a token on two simulated chips joined by simulated Ethernet, under fast dispatch, from traces:
with exact attention on one chip alone, with speculation between the chips at forced hit rates, and with `--own
THRESHOLD` at the layers' own decisions. Caches hold random numbers; with `--walk STEPS` they are random walks, and so
many steps follow one another, of which means are shown. A step is timed whole, from its first program to its last on
both chips, and compared with

- one chip alone with exact attention, whose cycles the guess shall save;
- appendix F's formula, given what attention, guess and the rest of a layer took in these very steps;
- with `--tensor-parallel`, exact attention with heads and columns split over the same two chips.

`--model llama-3.1-8b` runs layers of full size, or with `--tp` the part of one of so many chips in each row, without
its collectives, on all 64 cores; such a step takes minutes of a core for every hundred thousand cycles of a chip, and
`--steps FILE` lets a run go on where the last one stopped. With `--tree NODES` steps over token trees are measured too,
on one chip and on the pair (both_levels.py).

The simulator's cost model is a floor, and link times are guesses: read ratios of one run, not times.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from models.llama31_8b.command_line import OneLineParser
from models.llama31_8b.config import PRESETS, preset
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.settings import PREDICTORS, followed_range
from models.llama31_8b.tt.sharding import DECODE_SHARDINGS
from perf.lib.data_file import add_write_option, write
from perf.lib.files import new_file
from perf.lib.measuring_process import answered, measure_apart
from perf.steps import both_levels
from perf.steps.alspec_drawing import chrome_trace, plot
from perf.steps.alspec_programs import EXACT, own_names
from perf.steps.alspec_table import Step, report, table_rows
from perf.steps.full_size import FULL_GRID, THIN_VOCABULARY, check_fits, part_of
from runtime_patches.simulated_n150.grids import parse_grid
from tt_kernels.speculative_flash_decode.checks import MAX_THRESHOLD
from tt_kernels.speculative_sampling.checks import MAX_NODES

RATES = (0.0, 0.5, 1.0)
SMALL_GRID, LARGER_GRID = "4x1", "4x2"
PAIRS_CORES = 2  # the output and the exchange core
# What each kind of layers has options for: the other kind's are refused.
SMALL_LAYERS: dict[str, Any] = {"intermediate": 96, "kv_heads": 1}
FULL_SIZE: dict[str, Any] = {"tp": 1, "decode_sharding": "sharded"}
MAX_WALK = 64  # each decodes a token of its own, and the smallest vocabulary has 96


def run(
    shape: Mapping[str, Any],
    rates: Sequence[float],
    mesh: tuple[int, int] = (2, 1),
    grid: str = SMALL_GRID,
    own: float | None = None,
    kept: Path | None = None,
) -> dict[str, Step]:
    """Measure in a process of its own: see `alspec_step.measure`. kept: a file of steps that are not measured again,
    and that takes each of the others as soon as it is done. Errors: SystemExit with what went wrong there, ValueError
    for a file with steps of another shape."""
    from runtime_patches import sgdc
    from runtime_patches.profiling.timeline import TIMELINE_VARIABLES, timeline_overlays
    from runtime_patches.simulated_n150.environment import process_environment, simulated_environment

    done = steps_kept(kept, shape)
    names = [
        EXACT,
        *(f"{rate:g}" for rate in rates if mesh[0] == 2),
        *([] if own is None else own_names(shape["walk"])),
    ]
    if not set(names) <= set(done):
        overlays = {**sgdc.overlays(), **timeline_overlays()}
        variables = simulated_environment(grid, overlays, mesh=mesh, dispatch="fast") | TIMELINE_VARIABLES
        asked: dict[str, Any] = {"shape": dict(shape), "rates": list(rates), "mesh": list(mesh), "own": own}
        asked["kept"] = None if kept is None else str(kept.resolve())
        done |= measure_apart("perf.steps.bench_alspec", asked, process_environment(variables))
    return {name: done[name] for name in names}


def steps_kept(kept: Path | None, shape: Mapping[str, Any]) -> dict[str, Step]:
    """Return the steps in a file of `run`; none where it is not there. Errors: ValueError for those of another
    shape."""
    if kept is None or not kept.exists():
        return {}
    found = json.loads(kept.read_text())
    if found["shape"] != dict(shape):
        raise ValueError(f"{kept} has steps of {found['shape']}, asked for are {dict(shape)}")
    return found["steps"]


def _work(
    shape: Mapping[str, Any], rates: Sequence[float], mesh: Sequence[int], own: float | None, kept: str | None
) -> dict[str, Step]:
    from models.llama31_8b.tt.mesh import MeshShape
    from perf.steps.alspec_step import Shape, measure
    from runtime_patches.simulated_n150.dispatch import opening_options, program_room

    shape_of_mesh, path = MeshShape(*mesh), None if kept is None else Path(kept)
    steps = steps_kept(path, shape)

    def note(name: str, step: Step) -> None:
        steps[name] = step
        if path is not None:
            path.write_text(json.dumps({"shape": dict(shape), "steps": steps}) + "\n")

    device = shape_of_mesh.open(**program_room(), **opening_options("fast"))
    found = measure(device, Shape(**shape), rates, own, done=list(steps), note=note)
    shape_of_mesh.close(device)
    return found


def grid_of(options: argparse.Namespace) -> str:
    """Return the grid that holds the workers; with tensor parallelism the larger one for both meshes that are
    compared, since reduce_scatter over two links wants eight cores."""
    if options.model is not None:
        return FULL_GRID
    few = options.kv_heads * (options.workers or 1) <= _workers_on(SMALL_GRID)
    return SMALL_GRID if few and not options.tensor_parallel else LARGER_GRID


def _workers_on(grid: str) -> int:
    """Return the cores of a grid that are left for workers."""
    columns, rows = parse_grid(grid)
    return columns * rows - PAIRS_CORES


def shape_asked(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `alspec_step.Shape`; ends the process with a line for what no chip holds."""
    if options.layers < 1 or not all(0 <= rate <= 1 for rate in options.hits):
        parser.error(f"layers must be at least 1 and hit rates 0 to 1, got {options.layers} and {options.hits}")
    if options.chunk_size < 32 or options.chunk_size % 32 or options.context < 2 * options.chunk_size:
        parser.error(
            f"--chunk-size must be a multiple of 32 and --context at least twice it, got {options.chunk_size} and "
            f"{options.context}"
        )
    step = {"layers": options.layers, "context": options.context, "chunk_size": options.chunk_size}
    step |= {"workers": options.workers, "predictor": options.predictor, "walk": options.walk}
    if not options.hits and options.own is None:
        parser.error("--hits without rates needs --own THRESHOLD: else no step speculates")
    if options.walk and (options.own is None or options.tree is not None):
        parser.error(f"--walk {options.walk} needs --own THRESHOLD, by which layers decide, and goes without --tree")
    if not 0 <= options.walk <= MAX_WALK or options.walk > options.context - 2 * options.chunk_size:
        parser.error(
            f"--walk must be 0 to {MAX_WALK} steps from at least twice --chunk-size on to --context, got {options.walk}"
        )
    if options.predictor != PREDICTORS[0]:
        if options.tree is not None:
            parser.error(f"--predictor {options.predictor} guesses one token after another; --tree verifies several")
        try:
            followed_range(options.chunk_size)
        except ValueError as error:
            parser.error(f"--predictor {options.predictor}: {error}")
    if options.model is not None:
        return step | _full_size(parser, options)
    _check_workers(parser, options.workers, options.kv_heads, LARGER_GRID)
    if options.tensor_parallel and options.kv_heads % 2:
        parser.error(f"--tensor-parallel splits an even number of --kv-heads over two chips, got {options.kv_heads}")
    shapes = {"hidden_size": 64, "intermediate_size": options.intermediate, "head_dim": 64}
    shapes |= {"num_attention_heads": 2 * options.kv_heads, "num_key_value_heads": options.kv_heads}
    try:
        layers = replace(preset("llama-3.1-8b"), name="such a layer", **shapes)
        MeshShape(1, 2 if options.tensor_parallel else 1).check_model(layers)
    except ValueError as error:
        parser.error(str(error))
    sizes = {"hidden": 64, "intermediate": options.intermediate, "heads": 2 * options.kv_heads}
    return step | sizes | {"kv_heads": options.kv_heads}


def _take_defaults(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Set the options of the asked kind of layers that were not given; ends the process for one of the other kind."""
    own, other = (SMALL_LAYERS, FULL_SIZE) if options.model is None else (FULL_SIZE, SMALL_LAYERS)
    why = "needs --model" if options.model is None else "is of small layers, not of --model"
    for name in other:
        if getattr(options, name) is not None:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)} {why}")
    for name, value in own.items():
        if getattr(options, name) is None:
            setattr(options, name, value)


def _check_workers(parser: argparse.ArgumentParser, workers: int | None, kv_heads: int, grid: str) -> None:
    """End the process if the workers of all heads do not fit on a grid beside the pair's own two cores."""
    asked, most = kv_heads * (1 if workers is None else workers), _workers_on(grid)
    if not 1 <= asked <= most:
        parser.error(
            f"--workers times key/value heads must be 1 to {most}, the cores of the grid {grid} less two of the "
            f"pair's own; got {asked}"
        )


def _full_size(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a chip's part of a preset's layers."""
    if options.tensor_parallel:
        parser.error("--tensor-parallel compares small layers; --model runs a chip's part by --tp")
    config = preset(options.model)
    try:
        part = part_of(config, options.tp)
        check_fits(part, options.context, options.decode_sharding)
    except ValueError as error:
        parser.error(str(error))
    _check_workers(parser, options.workers, part.num_key_value_heads, FULL_GRID)
    return {
        "hidden": part.hidden_size,
        "intermediate": part.intermediate_size,
        "heads": part.num_attention_heads,
        "kv_heads": part.num_key_value_heads,
        "head_dim": part.head_dim,
        "vocab": THIN_VOCABULARY,
        "precision": "performance",
        "sharding": options.decode_sharding,
    }


def main(argv: list[str] | None = None) -> int:
    parser = OneLineParser(prog="python -m perf.steps.bench_alspec", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=512, help="cached tokens (default 512)")
    parser.add_argument("--chunk-size", type=int, default=64, help="tokens of the guess at either end")
    parser.add_argument("--predictor", choices=PREDICTORS, default=PREDICTORS[0], help="what the guess reads (ends)")
    parser.add_argument("--intermediate", type=int, help="width of small layers' MLP (default 96)")
    parser.add_argument(
        "--workers",
        type=int,
        help="cores per key/value head, of exact and speculative attention (default: by shapes)",
    )
    parser.add_argument("--kv-heads", type=int, help="of small layers, of 64 numbers, two queries each (default 1)")
    parser.add_argument("--model", choices=sorted(PRESETS), help="layers of full size on 8x8 cores, by the next two")
    parser.add_argument("--tp", type=int, help="of --model: the part of one of so many chips (default 1)")
    parser.add_argument("--decode-sharding", choices=DECODE_SHARDINGS, help="of --model (default sharded)")
    parser.add_argument(
        "--tensor-parallel",
        action="store_true",
        help="also run the step with exact attention, its heads and columns split over both chips",
    )
    parser.add_argument(
        "--tree", type=int, metavar="NODES", help="also steps over a chain of NODES tokens, which --json then holds"
    )
    parser.add_argument("--hits", type=float, nargs="*", default=list(RATES), help="hit rates, 0 to 1; may be none")
    parser.add_argument(
        "--own",
        type=float,
        metavar="THRESHOLD",
        help="also a step in which the layers decide, by this threshold",
    )
    parser.add_argument(
        "--walk",
        type=int,
        default=0,
        metavar="STEPS",
        help="with --own: so many steps that follow one another, over random walks in place of independent numbers",
    )
    add_write_option(parser, "--json")
    parser.add_argument("--trace", type=new_file, help="also write a Chrome / Perfetto trace there")
    parser.add_argument("--plot", type=new_file, help="also draw the programs there (PNG, PDF, SVG)")
    parser.add_argument(
        "--steps", type=new_file, metavar="FILE", help="keep measured steps there, and take those that are there"
    )
    options = parser.parse_args(argv)
    if options.own is not None and not 0 <= options.own <= MAX_THRESHOLD:
        parser.error(f"--own must be a threshold from 0 to {MAX_THRESHOLD:g}, got {options.own:g}")
    if options.tree is not None and not 1 <= options.tree <= MAX_NODES:
        parser.error(f"--tree must be 1 to {MAX_NODES} nodes, got {options.tree}")
    if options.tree is not None and options.steps is not None:
        parser.error("--steps keeps steps of one token; it does not go with --tree")
    _take_defaults(parser, options)
    shape = shape_asked(parser, options)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    split, grid = None, grid_of(options)
    if options.tensor_parallel:
        split = run(shape, (), (1, 2), grid)[EXACT]
    levels = None
    try:
        steps = run(shape, options.hits, grid=grid, own=options.own, kept=options.steps)
        if options.tree is not None:
            trees = run(shape | {"nodes": options.tree}, options.hits, grid=grid)
            levels = both_levels.rows(steps, trees, shape, options.tree)
    except ValueError as error:
        parser.error(str(error))
    if options.write:
        write(options.write, parser, argv, table_rows(steps, shape, split) if levels is None else levels)
    if options.trace:
        options.trace.write_text(json.dumps(chrome_trace(steps)) + "\n")
    if options.plot:
        plot(steps, options.plot)
    print(report(steps, shape, split))
    if levels is not None:
        print(both_levels.report(levels))
    return 0


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
