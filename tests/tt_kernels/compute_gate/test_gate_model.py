# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Random programs under random gates in traces on the simulated N150, against a plain model of the rules; and
traces of a pair, which an exchange precedes."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch

from runtime_patches import sgdc
from tests.support.run_op import Call, In, Make, priorities, run_ops
from tt_kernels.common import reference as common_reference
from tt_kernels.compute_gate import reference

pytestmark = pytest.mark.sim

CORES = 2  # of the chip, under one gate
ROWS = 4  # rows of words of each core; tiles of stock ops come on top
TILES = 3
REGIONS = 2  # gates in a trace
TRACES = 4
USERS = 2


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


def model(script):
    """Return rows, tiles and counts after each alternation of the script, by the rules alone."""
    rows = [[0] * ROWS for _ in range(CORES)]
    tiles, counts, history = [0] * TILES, {}, []
    for row, ops in script:
        skips = row is not None and reference.skips(row, 2)
        if row is not None:
            for name, number in reference.count(row, 2).items():
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

        from tests.tt_kernels.compute_gate import programs as programs
        from tt_kernels.compute_gate.op import OutcomeLog, clear_compute_gate

        clear_compute_gate(device)
        self.programs, self.ttnn, self.torch = programs, ttnn, torch
        self.tables = [programs.words(device, ROWS) for _ in range(CORES)]
        self.tiles, self.ones = [self._tile(device, 0) for _ in range(TILES)], self._tile(device, 1)
        self.log = OutcomeLog(device, 1, 2)
        # A region has priorities of its own, so that one trace can hold several gates.
        self.priorities = [programs.priorities(device, 0) for _ in range(regions)]

    def _tile(self, device, value: int):
        form = {"dtype": self.ttnn.bfloat16, "layout": self.ttnn.TILE_LAYOUT, "device": device}
        return self.ttnn.from_torch(torch.full((32, 32), float(value)), **form)

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
        table = [[int(row[1]) for row in read(t)[0, 0].to(torch.int64)] for t in self.tables]
        return table, [read(tile).unique().tolist() for tile in self.tiles]


def agree(seen, history) -> None:
    """Fails where what a chip held is not what the model holds then."""
    for number, (table, tiles) in seen.items():
        rows, sums = history[number]
        expected = [[value + 1 if value else 0 for value in row] for row in rows]  # word 1 of a stamp
        assert table == expected, f"rows after alternation {number}"
        assert tiles == [[float(value)] for value in sums], f"tiles after alternation {number}"


def replay_body(device, traced, replays, look_every):
    """traced: the ops of each trace's regions, and those after them. replays: (trace, each region's priorities)."""
    import ttnn

    memory, traces, seen = Memory(device, REGIONS), [], {}

    def work(regions, after):
        for region, ops in enumerate(regions):
            with memory.gate(region):
                for op in ops:
                    memory.launch(op)
        for op in after:
            memory.launch(op)

    for region in range(REGIONS):
        memory.write_priorities([0, 0], region)
    for regions, after in traced:  # compiles; with the gates closed, what is not gated runs
        work(regions, after)
    for regions, after in traced:
        trace = ttnn.begin_trace_capture(device, cq_id=0)
        work(regions, after)
        ttnn.end_trace_capture(device, trace, cq_id=0)
        traces.append(trace)
    memory.log.reset()
    entries = device.num_program_cache_entries()
    for number, (trace, rows) in enumerate(replays):
        for region in range(REGIONS):
            memory.write_priorities(rows[region], region)
        ttnn.execute_trace(device, traces[trace], cq_id=0, blocking=False)
        if number % look_every == look_every - 1 or number == len(replays) - 1:
            seen[number] = memory.look()
    new_programs = device.num_program_cache_entries() - entries
    for trace in traces:
        ttnn.release_trace(device, trace)
    return seen, memory.log.read()[0][0], new_programs


def draw_traces(draw: random.Random) -> list[tuple[list[list[Op]], list[Op]]]:
    return [([draw_ops(draw, draw.randrange(1, 3)) for _ in range(REGIONS)], draw_ops(draw, 1)) for _ in range(TRACES)]


def test_random_alternations_inside_replayed_traces(sim_device):
    draw = random.Random(24)
    traced = draw_traces(draw)
    count = 12  # of two alternations each
    replays = [(draw.randrange(TRACES), [draw_row(draw) for _ in range(REGIONS)]) for _ in range(count)]
    script = [(None, after) for _, after in traced]  # the runs that compile, and each replay, by the rules
    for trace, rows in replays:
        regions, after = traced[trace]
        script += [*zip(rows, regions, strict=True), (None, after)]
    history, expected = model(script)
    assert max(history[-1][1]) <= 256, "the sums must stay exact in bfloat16"
    device = sim_device("2x1", overlays=sgdc.overlays(), dispatch="fast")
    seen, log, new_programs = device.run(replay_body, traced, replays, 3, timeout=600)
    agree(seen, {number: history[len(traced) + (REGIONS + 1) * (number + 1) - 1] for number in seen})
    assert {name: getattr(log, name) for name in expected} == expected
    assert new_programs == 0
    skipped = sum(
        reference.skips(rows[region], 2)
        for trace, rows in replays
        for region, ops in enumerate(traced[trace][0])
        for _ in ops
    )
    assert skipped > count / 3, "the replays skip too little to prove anything"


def layer(exchange, residual, row, mean, ones, product, total, after):
    """Do an exchange, a gated matmul and add, and an ungated add; return the priorities that both gathered."""
    import ttnn

    from tt_kernels.compute_gate.op import skip_compute

    told = exchange(residual, row)
    with skip_compute(row, users=USERS):
        ttnn.matmul(residual, mean, optional_output_tensor=product)
        ttnn.add(product, ones, output_tensor=total)
    ttnn.add(total, ones, output_tensor=after)
    return told


@pytest.mark.timeout(900)
def test_one_trace_of_a_pair_serves_every_outcome(sim_mesh):
    """Chip 0 works and chip 1 skips, both work, chip 1 works and chip 0 skips, in turns."""
    rows = [([2, 2], [0, 0]), ([1, 1], [2, 0]), ([0, 0], [1, 2]), ([0, 3], [1, 1]), ([2, 2], [0, 0])]
    values = [(2.0 * i + 1, 2.0 * i + 2) for i in range(len(rows))]
    pairs = Make("tt_kernels.common.peer:ChipPairs", 1, device=True)
    exchange = Make("tt_kernels.device_exchange.op:DeviceExchange", pairs, users=USERS)

    def tiles(each, name=None) -> In:
        parts = torch.cat([torch.full((1, 1, 32, 32), value) for value in each], dim=1)
        return In(parts, split=(None, 1), read=name)

    mean, ones, calls = tiles((1 / 32, 1 / 32)), tiles((1.0, 1.0)), []
    for row, value in zip(rows, values, strict=True):
        told = In(torch.cat([priorities(each).values for each in row], dim=1), "uint32", split=(None, 1))
        blank = [tiles((0.0, 0.0), name) for name in ("product", "total", "after")]
        calls.append(Call(f"{__name__}:layer", exchange, tiles(value, "residual"), told, mean, ones, *blank))
    mesh = sim_mesh((1, 2), "1x1", overlays=sgdc.overlays(), dispatch="fast")
    results = run_ops(mesh, calls, traced=True)
    for number, (row, value, found) in enumerate(zip(rows, values, results, strict=True)):
        taken = value[common_reference.sender(row, USERS)]
        right = {False: [taken, taken + 1, taken + 2], True: [0.0, 0.0, 1.0]}  # run, skipped
        assert found["errors"]["ChipPairs"] is None
        for chip in (0, 1):
            assert found["out"][0, chip][0, 0, :, :USERS].tolist() == list(map(list, row)), f"replay {number}"
            assert (found["residual"][0, chip] == taken).all()
            seen = [found[name][0, chip].unique().tolist() for name in ("product", "total", "after")]
            assert seen == [[each] for each in right[reference.skips(row[chip], USERS)]], f"replay {number}"
    assert len({found["entries"] for found in results}) == 1
