# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure what attention-level speculation gains in a decode step of two simulated chips.

A few Llama layers decode a token on two simulated chips joined by simulated Ethernet, under fast dispatch, from traces:
with exact attention on one chip alone, and with speculation between the chips at forced hit rates. A step is timed
whole, from its first program to its last on both chips, and compared with one chip alone with exact attention; with
appendix F's formula, given what attention, guess and the rest of a layer took in these very steps; and with
`--tensor-parallel` with exact attention split over the same two chips.

Steps of layers of full size (`--model`, `--tp`) take minutes of a core for every hundred thousand cycles of a chip, and
leave out their collectives; `--steps FILE` lets a run go on where the last one stopped. `--rows-of CHIPS` executes two
rows of such parts whole, with their collectives, beside the sum of parts by which perf.projection counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from models.llama31_8b.config import PREDICTORS, PRESETS, preset
from models.llama31_8b.tt.mesh import TILE, MeshShape
from perf.lib.chip import Chip, measure_apart
from perf.lib.data_file import Kept, Row, markdown, new_file
from perf.ops.__main__ import run as run_op
from perf.ops.families import FAMILIES
from perf.step.figures import Step, both_levels, plot, rows, whole_rows
from perf.step.shapes import EXACT, FULL_GRID, THIN_VOCABULARY, Shape, check_fits, known_weights, part_of
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_sampling.checks import MAX_NODES

SMALL_GRID, LARGER_GRID = "4x1", "4x2"
# Cores that are left for workers by the one that puts outputs together and the one that exchanges.
WORKERS = {SMALL_GRID: 2, LARGER_GRID: 6, FULL_GRID: 62}
# What each kind of layers has options for: the other kind's are refused.
SMALL_LAYERS, FULL_SIZE = {"intermediate": 96, "kv_heads": 1}, {"tp": 1}
SHARDING = "sharded"  # of layers of full size


def run(
    shape: Mapping[str, Any],
    rates: Sequence[float],
    mesh: tuple[int, int] = (2, 1),
    grid: str = SMALL_GRID,
    kept: Path | None = None,
) -> dict[str, Step]:
    """Measure in a process of its own: see `device.measure_pair`.

    Args:
        kept: a file of steps that are not measured again, and that takes each of the others as soon as it is done.

    Raises:
        SystemExit: with what went wrong there. ValueError: for a file with steps of another shape.
    """
    done = Kept(kept, dict(shape)).steps
    names = [EXACT, *(f"{rate:g}" for rate in rates if mesh[0] == 2)]
    if not set(names) <= set(done):
        asked: dict[str, Any] = {"shape": dict(shape), "rates": list(rates), "mesh": list(mesh)}
        asked["kept"] = None if kept is None else str(kept.resolve())
        environment = Chip(grid, mesh, gated=True, timed=True).environment()
        done = measure_apart("perf.step", {"work": "pair", "asked": asked}, environment)
    return {name: done[name] for name in names}


def work(shape: dict[str, Any], rates: Sequence[float], mesh: list[int], kept: str | None) -> Mapping[str, Step]:
    from perf.step.device import measure_pair

    done = Kept(None if kept is None else Path(kept), shape)
    with Chip(FULL_GRID, (mesh[0], mesh[1]), timed=True).opened() as device:
        measure_pair(device, Shape(**shape), rates, done)
    return done.steps


def grid_of(options: argparse.Namespace) -> str:
    """Return the grid that holds the workers; with tensor parallelism the larger one for both meshes that are
    compared, since reduce_scatter over two links wants eight cores."""
    if options.model is not None:
        return FULL_GRID
    few = options.kv_heads * (options.workers or 1) <= WORKERS[SMALL_GRID]
    return SMALL_GRID if few and not options.tensor_parallel else LARGER_GRID


def _check(options: argparse.Namespace) -> None:
    """Refuse options that make no sense, or that change nothing. Raises ValueError."""
    tree, chunk, context = (getattr(options, name) for name in ("tree", "chunk_size", "context"))
    small = options.model is None
    kind, other = (SMALL_LAYERS, FULL_SIZE) if small else (FULL_SIZE, SMALL_LAYERS)
    for name in other:
        if (value := getattr(options, name)) is not None:
            why = "needs --model" if small else "is of small layers, not of --model"
            raise ValueError(f"--{name.replace('_', '-')} {value} {why}")
    for name, default in kind.items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    for wrong, why in (
        (tree is not None and not 1 <= tree <= MAX_NODES, f"--tree must be 1 to {MAX_NODES} nodes, got {tree}"),
        (tree is not None and options.steps, "--steps keeps steps of one token; it does not go with --tree"),
        (
            options.layers < 1 or not all(0 <= rate <= 1 for rate in options.hits),
            f"layers must be at least 1 and hit rates 0 to 1, got {options.layers} and {options.hits}",
        ),
        (
            chunk < 32 or chunk % 32 or context < 2 * chunk,
            f"--chunk-size must be a multiple of 32 and --context at least twice it, got {chunk} and {context}",
        ),
        (not small and options.tensor_parallel, "--tensor-parallel compares small layers; --model runs a chip's part"),
        (
            options.rows_of and (small or tree is not None or options.layers < 2 or not {0, 1} & set(options.hits)),
            "--rows-of needs --model, two --layers or more and --hits 1 or 0, and does not go with --tree",
        ),
        (
            options.rows_of and not small and options.tp % options.rows_of,
            f"--tp must be a multiple of --rows-of, got {options.tp} and {options.rows_of}",
        ),
        (
            bool(options.chosen) != (options.predictor == "budget"),
            f"--predictor budget and --chosen TILES need each other; got --predictor {options.predictor} --chosen "
            f"{options.chosen}",
        ),
    ):
        if wrong:
            raise ValueError(why)
    if options.chosen:
        known_weights(GuessRange(TILE, chunk, whole_tail=True).middle(context), options.chosen, -(-context // TILE))


def shape_asked(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `Shape` that are asked for. Raises ValueError for what no chip holds."""
    _check(options)
    names = ("layers", "context", "chunk_size", "workers", "predictor", "chosen")
    step = {name: getattr(options, name) for name in names}
    kv_heads, grid = options.kv_heads, LARGER_GRID
    if options.model is not None:
        part, grid = part_of(preset(options.model), options.tp), FULL_GRID
        check_fits(part, options.context, SHARDING)
        kv_heads = part.num_key_value_heads
    asked, most = kv_heads * (1 if options.workers is None else options.workers), WORKERS[grid]
    if not 1 <= asked <= most:
        raise ValueError(
            f"--workers times key/value heads must be 1 to {most}, the cores of the grid {grid} less two of the "
            f"pair's own; got {asked}"
        )
    if options.model is not None:
        return step | {
            "hidden": part.hidden_size,
            "intermediate": part.intermediate_size,
            "heads": part.num_attention_heads,
            "kv_heads": kv_heads,
            "head_dim": part.head_dim,
            "vocab": THIN_VOCABULARY,
            "precision": "performance",
            "sharding": SHARDING,
        }
    if options.tensor_parallel and kv_heads % 2:
        raise ValueError(f"--tensor-parallel takes an even number of --kv-heads for two chips, got {kv_heads}")
    sizes = {"intermediate": options.intermediate, "heads": 2 * kv_heads, "kv_heads": kv_heads}
    MeshShape(1, 2 if options.tensor_parallel else 1).check_model(replace(Shape(**sizes).config(), name="such a layer"))
    return step | {"hidden": Shape.hidden} | sizes


def rows_whole(options: argparse.Namespace, shape: dict[str, Any], parts: Mapping[str, Step]) -> list[Row]:
    """Execute two rows of chips with the parts of `shape` whole, and a layer's all-reduces in a row; return
    `whole_rows`."""
    chips, asked = options.rows_of, [f"chips={options.rows_of}", f"columns={shape['hidden']}", f"tp={options.tp}"]
    file, sums = (
        options.steps and options.steps.with_name(f"{options.steps.stem}_{name}{options.steps.suffix}")
        for name in ("whole", "all_reduce")
    )
    reduced = run_op("all_reduce", FAMILIES["all_reduce"].asked([*asked, "product=qkv,gate_up"]), sums)
    whole = shape | {name: chips * shape[name] for name in ("intermediate", "heads", "kv_heads", "vocab")}
    steps = run(whole, options.hits, (2, chips), FULL_GRID, file)
    return whole_rows(parts, steps, shape, sum(row["cycles"] for row in reduced))


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--layers", type=int, default=2)
    add("--context", type=int, default=512, help="cached tokens (default 512)")
    add("--chunk-size", type=int, default=64, help="tokens of the guess at either end")
    add("--predictor", choices=PREDICTORS, default="ends", help="what the guess reads (ends)")
    add("--chosen", type=int, default=0, help="with --predictor budget: tiles of 32 keys that it chooses for each head")
    add("--intermediate", type=int, help="width of small layers' MLP (default 96)")
    add("--workers", type=int, help="cores per key/value head, of exact and speculative attention (default: by shapes)")
    add("--kv-heads", type=int, help="of small layers, of 64 numbers, two queries each (default 1)")
    add("--model", choices=sorted(PRESETS), help="layers of full size on 8x8 cores, whose decode steps are sharded")
    add("--tp", type=int, help="of --model: the part of one of so many chips (default 1)")
    together = "also run the step with exact attention, its heads and columns split over both chips"
    add("--tensor-parallel", action="store_true", help=together)
    whole = "of --model: also two rows of so many such chips whole, beside their parts' sum, which --write then holds"
    add("--rows-of", type=int, choices=(2, 4), metavar="CHIPS", help=whole)
    trees = "also steps over a chain of NODES tokens, which --write then holds"
    add("--tree", type=int, metavar="NODES", help=trees)
    add("--hits", type=float, nargs="+", default=[0.0, 0.5, 1.0], help="hit rates, 0 to 1")
    add("--plot", type=new_file, help="also draw the programs there (PNG, PDF, SVG)")
    add("--steps", type=new_file, metavar="FILE", help="keep measured steps there, and take those that are there")


def answer(options: argparse.Namespace) -> tuple[list[Row], str]:
    """Return the rows of the steps, or of what was measured beside them. Raises ValueError for what makes no sense or
    no chip holds, before any work."""
    shape, grid = shape_asked(options), grid_of(options)
    split, levels = None, None
    if options.tensor_parallel:
        split = run(shape, (), (1, 2), grid)[EXACT]
    steps = run(shape, options.hits, grid=grid, kept=options.steps)
    if options.tree is not None:
        trees = run(shape | {"nodes": options.tree}, options.hits, grid=grid)
        levels = both_levels(steps, trees, shape, options.tree)
    if options.rows_of is not None:
        levels = rows_whole(options, shape, steps)
    found = rows(steps, shape, split)
    if options.plot:
        plot(steps, options.plot)
    parts = {name for name in (*found[0], *(levels or [{}])[0]) if name.startswith("part_")}
    text = markdown(found, {*shape, *parts, "exact", "tensor_parallel"})
    if levels is None:
        return found, text
    return levels, f"{text}\n\n{markdown(levels, {*shape, *parts, 'nodes', 'plain', 'trees'})}"
