# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Random programs under random gates, a plain model of what the gate's rules make of them, and their memory."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tt_kernels.compute_gate import reference

MEMBERS = 2  # one on each core of the chip; a gate that closes one must not touch the other
ROWS = 4  # rows of words of each member; tiles of stock ops come on top
TILES = 3


@dataclass(frozen=True)
class Op:
    """One program: `kind` stamp (row `a` := value), copy (row `b` := row `a`) or add (tile `b` := tile `a` +
    one)."""

    kind: str
    member: int
    a: int
    b: int
    value: int


def draw_ops(draw: random.Random, count: int, stock: bool) -> list[Op]:
    kinds = draw.choices(("stamp", "copy", "add"), weights=(3, 3, 2 if stock else 0), k=count)
    ops = []
    for kind in kinds:
        limit = TILES if kind == "add" else ROWS
        member = draw.randrange(MEMBERS)
        ops.append(Op(kind, member, draw.randrange(limit), draw.randrange(limit), draw.randrange(1, 1 << 20)))
    return ops


def draw_script(seed: int, alternations: int, whole_chip: bool) -> list[tuple[list[list[int]] | None, list[Op]]]:
    """Alternations: the members' priorities (None: no region) and the ops launched under them.

    A stock op uses every core, so there is none with a gate for each member.
    """
    draw, script = random.Random(seed), []
    for _ in range(alternations):
        gated = draw.random() < 0.75
        rows = [[0, 0] if draw.random() < 0.5 else [draw.randrange(4) for _ in range(2)] for _ in range(MEMBERS)]
        script.append((rows if gated else None, draw_ops(draw, draw.randrange(1, 3), whole_chip)))
    return script


def model(script, whole_chip: bool):
    """Rows, tiles and outcome counts after the script, by the rules alone."""
    rows = [[0] * ROWS for _ in range(MEMBERS)]
    tiles, counts, history = [0] * TILES, [{} for _ in range(MEMBERS)], []
    for priorities, ops in script:
        skips = [False] * MEMBERS
        if priorities is not None:
            used = [priorities[0]] * MEMBERS if whole_chip else priorities
            skips = [reference.skips(row, 2) for row in used]
            for member in range(1 if whole_chip else MEMBERS):
                for name, number in reference.count(used[member], 2).items():
                    counts[member][name] = counts[member].get(name, 0) + number
        for op in ops:
            if skips[op.member]:
                continue
            if op.kind == "stamp":
                rows[op.member][op.a] = op.value
            elif op.kind == "copy":
                rows[op.member][op.b] = rows[op.member][op.a]
            else:
                tiles[op.b] = tiles[op.a] + 1
        history.append(([list(member) for member in rows], list(tiles)))
    return history, counts


class Memory:
    """What the ops of a script work on, on a device: tables of words, tiles, priorities and logs."""

    def __init__(self, device, whole_chip: bool, regions: int = 1) -> None:
        import torch
        import ttnn

        from tests.tt_kernels.compute_gate import sgdc_programs as programs
        from tt_kernels.compute_gate.op import OutcomeLog, clear_compute_gate

        clear_compute_gate(device)
        self.whole_chip, self.programs, self.ttnn, self.torch = whole_chip, programs, ttnn, torch
        self.tables = [programs.words(device, ROWS) for _ in range(MEMBERS)]
        self.tiles, self.ones = [self._tile(device, 0) for _ in range(TILES)], self._tile(device, 1)
        self.logs = [OutcomeLog(device, 1, 2) for _ in range(1 if whole_chip else MEMBERS)]
        # A region has priorities of its own, so that one trace can hold several gates.
        self.priorities = [[programs.priorities(device, 0) for _ in self.logs] for _ in range(regions)]

    def _tile(self, device, value: int):
        values, bfloat16, layout = (
            self.torch.full((32, 32), float(value)),
            self.ttnn.bfloat16,
            self.ttnn.TILE_LAYOUT,
        )
        return self.ttnn.from_torch(values, dtype=bfloat16, layout=layout, device=device)

    def launch(self, op: Op) -> None:
        if op.kind == "stamp":
            self.programs.stamp(self.tables[op.member], op.a, op.value, core=(op.member, 0))
        elif op.kind == "copy":
            self.programs.copy_row(self.tables[op.member], op.a, op.b, core=(op.member, 0))
        else:
            self.ttnn.add(self.tiles[op.a], self.ones, output_tensor=self.tiles[op.b])

    def write_priorities(self, rows: list[list[int]], region: int = 0) -> None:
        for tensor, row in zip(self.priorities[region], rows, strict=False):
            self.programs.write_priorities(tensor, row)

    def gate(self, region: int = 0):
        from tt_kernels.common.cores import core_set
        from tt_kernels.compute_gate.op import GateMember, skip_compute

        tensors = self.priorities[region]
        if self.whole_chip:
            return skip_compute(tensors[0], users=2, log=self.logs[0], layer=0)
        members = [GateMember(t, core_set((m, 0)), self.logs[m]) for m, t in enumerate(tensors)]
        return skip_compute(members, users=2, layer=0)

    def look(self) -> tuple[list[list[int]], list[list[float]]]:
        """Word 1 of each row of each table, and the values of each tile."""
        read = self.ttnn.to_torch
        table = [[int(row[1]) for row in read(t)[0, 0].to(self.torch.int64)] for t in self.tables]
        return table, [read(tile).unique().tolist() for tile in self.tiles]


def script_body(device, script, whole_chip, look_every):
    memory, seen = Memory(device, whole_chip), {}
    for number, (rows, ops) in enumerate(script):
        if rows is None:
            for op in ops:
                memory.launch(op)
        else:
            memory.write_priorities(rows)
            with memory.gate():
                for op in ops:
                    memory.launch(op)
        if number % look_every == look_every - 1 or number == len(script) - 1:
            seen[number] = memory.look()
    return seen, [log.read()[0][0] for log in memory.logs]


def agree(seen, history) -> None:
    """Fails where what a chip held is not what the model holds then."""
    for number, (table, tiles) in seen.items():
        rows, sums = history[number]
        expected = [[value + 1 if value else 0 for value in member] for member in rows]  # word 1 of a stamp
        assert table == expected, f"rows after alternation {number}"
        assert tiles == [[float(value)] for value in sums], f"tiles after alternation {number}"
