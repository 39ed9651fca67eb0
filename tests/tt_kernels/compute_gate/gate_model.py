# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Random programs under random gates, a plain model of what the gate's rules make of them, and their memory."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tt_kernels.compute_gate import reference

CORES = 2  # of the chip, under one gate
ROWS = 4  # rows of words of each core; tiles of stock ops come on top
TILES = 3


@dataclass(frozen=True)
class Op:
    """One program: `kind` stamp (row `a` := value), copy (row `b` := row `a`) or add (tile `b` := tile `a` +
    one)."""

    kind: str
    core: int
    a: int
    b: int
    value: int


def draw_ops(draw: random.Random, count: int) -> list[Op]:
    kinds = draw.choices(("stamp", "copy", "add"), weights=(3, 3, 2), k=count)
    ops = []
    for kind in kinds:
        limit = TILES if kind == "add" else ROWS
        ops.append(
            Op(kind, draw.randrange(CORES), draw.randrange(limit), draw.randrange(limit), draw.randrange(1, 1 << 20))
        )
    return ops


def draw_row(draw: random.Random) -> list[int]:
    """Draw the chip's priorities of two users."""
    return [0, 0] if draw.random() < 0.5 else [draw.randrange(4) for _ in range(2)]


def draw_script(seed: int, alternations: int) -> list[tuple[list[int] | None, list[Op]]]:
    """Draw alternations: the chip's priorities (None: no region) and the ops launched under them."""
    draw, script = random.Random(seed), []
    for _ in range(alternations):
        gated, row = draw.random() < 0.75, draw_row(draw)
        script.append((row if gated else None, draw_ops(draw, draw.randrange(1, 3))))
    return script


def model(script):
    """Return rows, tiles and counts after each alternation of the script, by the rules alone."""
    rows = [[0] * ROWS for _ in range(CORES)]
    tiles, counts, history = [0] * TILES, {}, []
    for priorities, ops in script:
        skips = priorities is not None and reference.skips(priorities, 2)
        if priorities is not None:
            for name, number in reference.count(priorities, 2).items():
                counts[name] = counts.get(name, 0) + number
        for op in () if skips else ops:
            if op.kind == "stamp":
                rows[op.core][op.a] = op.value
            elif op.kind == "copy":
                rows[op.core][op.b] = rows[op.core][op.a]
            else:
                tiles[op.b] = tiles[op.a] + 1
        history.append(([list(row) for row in rows], list(tiles)))
    return history, counts


class Memory:
    """What the ops of a script work on, on a device: tables of words, tiles, priorities and the log."""

    def __init__(self, device, regions: int = 1) -> None:
        import torch
        import ttnn

        from tests.tt_kernels.compute_gate import sgdc_programs as programs
        from tt_kernels.compute_gate.op import OutcomeLog, clear_compute_gate

        clear_compute_gate(device)
        self.programs, self.ttnn, self.torch = programs, ttnn, torch
        self.tables = [programs.words(device, ROWS) for _ in range(CORES)]
        self.tiles, self.ones = [self._tile(device, 0) for _ in range(TILES)], self._tile(device, 1)
        self.log = OutcomeLog(device, 1, 2)
        # A region has priorities of its own, so that one trace can hold several gates.
        self.priorities = [programs.priorities(device, 0) for _ in range(regions)]

    def _tile(self, device, value: int):
        values, bfloat16, layout = (
            self.torch.full((32, 32), float(value)),
            self.ttnn.bfloat16,
            self.ttnn.TILE_LAYOUT,
        )
        return self.ttnn.from_torch(values, dtype=bfloat16, layout=layout, device=device)

    def launch(self, op: Op) -> None:
        if op.kind == "stamp":
            self.programs.stamp(self.tables[op.core], op.a, op.value, core=(op.core, 0))
        elif op.kind == "copy":
            self.programs.copy_row(self.tables[op.core], op.a, op.b, core=(op.core, 0))
        else:
            self.ttnn.add(self.tiles[op.a], self.ones, output_tensor=self.tiles[op.b])

    def write_priorities(self, row: list[int], region: int = 0) -> None:
        self.programs.write_priorities(self.priorities[region], row)

    def gate(self, region: int = 0):
        from tt_kernels.compute_gate.op import skip_compute

        return skip_compute(self.priorities[region], users=2, log=self.log, layer=0)

    def look(self) -> tuple[list[list[int]], list[list[float]]]:
        """Word 1 of each row of each table, and the values of each tile."""
        read = self.ttnn.to_torch
        table = [[int(row[1]) for row in read(t)[0, 0].to(self.torch.int64)] for t in self.tables]
        return table, [read(tile).unique().tolist() for tile in self.tiles]


def script_body(device, script, look_every):
    memory, seen = Memory(device), {}
    for number, (row, ops) in enumerate(script):
        if row is None:
            for op in ops:
                memory.launch(op)
        else:
            memory.write_priorities(row)
            with memory.gate():
                for op in ops:
                    memory.launch(op)
        if number % look_every == look_every - 1 or number == len(script) - 1:
            seen[number] = memory.look()
    return seen, memory.log.read()[0][0]


def agree(seen, history) -> None:
    """Fails where what a chip held is not what the model holds then."""
    for number, (table, tiles) in seen.items():
        rows, sums = history[number]
        expected = [[value + 1 if value else 0 for value in row] for row in rows]  # word 1 of a stamp
        assert table == expected, f"rows after alternation {number}"
        assert tiles == [[float(value)] for value in sums], f"tiles after alternation {number}"
