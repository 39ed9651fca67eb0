# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A sweep as pictures: ops of a layer on top of each other, a step's time over chips, attention's over the context."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from perf.sweep.groups import GROUPS, MID, merged, ns_of, table
from perf.sweep.table import PASS, Block

BARS = 24


def save(blocks: Sequence[Block], folder: Path) -> list[Path]:
    """Draw the pictures that the sweep has numbers for as PNG into `folder`, which is made; return their paths. Errors:
    ValueError for none."""
    passed = [block for block in blocks if block.status == PASS]
    makers = {"ops_of_a_layer": _stack, "scaling": _scaling, "context": _context}
    found = []
    for name, draw in makers.items():
        figure = Figure(figsize=(10, 5.5), dpi=130, layout="constrained")
        FigureCanvasAgg(figure)
        if draw(figure, passed):
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(folder / f"{name}.png")
            found.append(folder / f"{name}.png")
    if not found:
        raise ValueError("nothing to plot: no configuration passed that is a decode step or a flash decode")
    return found


def step_ns(block: Block) -> float:
    """Return the time from the first program's start to the last one's end, over the chips, whose clocks are one in
    these sources; where starts are not known, the programs one after another."""
    starts = [row["DEVICE FW START CYCLE"] for row in block.rows]
    if block.source == "n150" or not all(starts):
        return sum(map(ns_of, merged(block)))
    return max(float(row["DEVICE FW END CYCLE"]) for row in block.rows) - min(map(float, starts))


def _steps(blocks: Sequence[Block]) -> list[Block]:
    return [block for block in blocks if block.options()["family"] == "decode"]


def _label(block: Block, *names: str) -> str:
    options = block.options()
    return " ".join([*(options[name] for name in names), block.source])


def _stack(figure: Figure, blocks: Sequence[Block]) -> bool:
    steps = _steps(blocks)[:BARS]
    if not steps:
        return False
    panel = figure.subplots()
    heights = []
    for block in steps:
        groups = table(block)
        ops = groups.get(MID) or groups.get(GROUPS[0], {})
        heights.append({code: op["kernel_duration"] * op["calls"] / 1000 for code, op in ops.items()})
    codes = list(dict.fromkeys(code for of in heights for code in of))
    palette, below = colormaps["tab20"], [0.0] * len(steps)
    for index, code in enumerate(codes):
        values = [of.get(code, 0.0) for of in heights]
        panel.bar(range(len(steps)), values, bottom=below, label=code, color=palette(index % 20))
        below = [low + value for low, value in zip(below, values, strict=True)]
    names = [_label(block, "mesh", "context", "attention", "plan") for block in steps]
    panel.set_xticks(range(len(steps)), names, rotation=60, ha="right", fontsize=6)
    panel.set_ylim(0, 1.05 * max(below))
    panel.set_ylabel("us of a layer (sim: 1000 cycles)")
    panel.legend(fontsize=6, loc="upper left", bbox_to_anchor=(1, 1))
    return True


def _scaling(figure: Figure, blocks: Sequence[Block]) -> bool:
    lines: dict[str, list[tuple[int, float]]] = {}
    for block in _steps(blocks):
        rows, columns = map(int, block.options()["mesh"].split("x"))
        name = _label(block, "context", "attention", "chunk_size", "plan", "users", "layers")
        lines.setdefault(name, []).append((rows * columns, step_ns(block) / 1000))
    lines = {name: sorted(points) for name, points in lines.items() if len({chips for chips, _ in points}) > 1}
    return _drawn(figure, lines, "chips", "us of a step (sim: 1000 cycles)")


def _context(figure: Figure, blocks: Sequence[Block]) -> bool:
    lines: dict[str, list[tuple[int, float]]] = {}
    for block in blocks:
        options = block.options()
        if options["family"] == "flash_decode":
            name = _label(block, "variant", "chunk_size", "heads", "users")
            lines.setdefault(name, []).append((int(options["context"]), step_ns(block) / 1000))
    lines = {name: sorted(points) for name, points in lines.items() if len(points) > 1}
    return _drawn(figure, lines, "cached tokens", "us of flash decode (sim: 1000 cycles)")


def _drawn(figure: Figure, lines: dict[str, list[tuple[int, float]]], x: str, y: str) -> bool:
    if not lines:
        return False
    panel = figure.subplots()
    for name, points in lines.items():
        panel.plot([at for at, _ in points], [value for _, value in points], marker="o", markersize=4, label=name)
    ticks = sorted({at for points in lines.values() for at, _ in points})
    panel.set_xscale("log", base=2)
    panel.set_xticks(ticks, [str(at) for at in ticks])
    panel.minorticks_off()
    panel.set_ylim(bottom=0)
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    panel.grid(alpha=0.3, linewidth=0.6)
    panel.legend(fontsize=7)
    return True
