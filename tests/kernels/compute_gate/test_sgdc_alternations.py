# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Random programs under random gates on the simulated N150, against a plain model of the rules."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from runtime_patches import sgdc
from tt_kernels.compute_gate import reference

pytestmark = pytest.mark.sim

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


def draw_script(
    seed: int, alternations: int, whole_chip: bool
) -> list[tuple[list[list[int]] | None, list[Op]]]:
    """Alternations: the members' priorities (None: no region) and the ops launched under them.

    A stock op uses every core, so there is none with a gate for each member.
    """
    draw, script = random.Random(seed), []
    for _ in range(alternations):
        gated = draw.random() < 0.75
        rows = [
            [0, 0] if draw.random() < 0.5 else [draw.randrange(4) for _ in range(2)] for _ in range(MEMBERS)
        ]
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


def script_body(device, script, whole_chip, look_every):
    import torch
    import ttnn

    from tests.kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.cores import core_set
    from tt_kernels.compute_gate.op import GateMember, OutcomeLog, clear_compute_gate, skip_compute

    clear_compute_gate(device)
    tables = [programs.words(device, ROWS) for _ in range(MEMBERS)]
    tiles = [
        ttnn.from_torch(torch.zeros(32, 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        for _ in range(TILES)
    ]
    ones = ttnn.from_torch(torch.ones(32, 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    logs = [OutcomeLog(device, 1, 2) for _ in range(1 if whole_chip else MEMBERS)]
    priorities = [programs.priorities(device, 0) for _ in range(MEMBERS)]
    members = [GateMember(priorities[m], core_set((m, 0)), log) for m, log in enumerate(logs)]

    def launch(op):
        if op.kind == "stamp":
            programs.stamp(tables[op.member], op.a, op.value, core=(op.member, 0))
        elif op.kind == "copy":
            programs.copy_row(tables[op.member], op.a, op.b, core=(op.member, 0))
        else:
            ttnn.add(tiles[op.a], ones, output_tensor=tiles[op.b])

    def look():
        table = [[int(row[1]) for row in ttnn.to_torch(t)[0, 0].to(torch.int64)] for t in tables]
        values = [ttnn.to_torch(tile).unique().tolist() for tile in tiles]
        return table, values

    seen = {}
    for number, (rows, ops) in enumerate(script):
        if rows is None:
            for op in ops:
                launch(op)
        else:
            for m in range(len(logs)):
                programs.write_priorities(priorities[m], rows[m])
            region = (
                skip_compute(priorities[0], users=2, log=logs[0], layer=0)
                if whole_chip
                else skip_compute(members, users=2, layer=0)
            )
            with region:
                for op in ops:
                    launch(op)
        if number % look_every == look_every - 1 or number == len(script) - 1:
            seen[number] = look()
    return seen, [log.read()[0][0] for log in logs]


@pytest.mark.parametrize("whole_chip", [True, False], ids=["one gate for the chip", "a gate for each core"])
def test_random_alternations_follow_the_rules(sim_device, whole_chip):
    script = draw_script(11 + whole_chip, 100, whole_chip)
    history, counts = model(script, whole_chip)
    device = sim_device("2x1", overlays=sgdc.overlays())
    assert max(history[-1][1]) <= 256, "the sums must stay exact in bfloat16"
    seen, logs = device.run(script_body, script, whole_chip, 4, timeout=900)
    for number, (table, tiles) in seen.items():
        rows, sums = history[number]
        expected = [[value + 1 if value else 0 for value in member] for member in rows]  # word 1 of a stamp
        assert table == expected, f"rows after alternation {number}"
        assert tiles == [[float(value)] for value in sums], f"tiles after alternation {number}"
    for log, expected in zip(logs, counts, strict=False):
        assert {name: getattr(log, name) for name in expected} == expected
    skipped = sum(
        reference.skips(rows[0 if whole_chip else op.member], 2) for rows, ops in script if rows for op in ops
    )
    assert skipped > 30, "the script skips too little to prove anything"
