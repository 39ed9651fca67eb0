# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The gate is data: a trace is captured once and replayed under any priorities."""

from __future__ import annotations

import random

import pytest
import torch

from runtime_patches import sgdc
from tests.tt_kernels.compute_gate.gate_model import Memory, Op, agree, draw_ops, draw_row, model
from tt_kernels.common import reference as common_reference
from tt_kernels.compute_gate import reference

pytestmark = pytest.mark.sim

REGIONS = 2  # gates in a trace
TRACES = 4
USERS = 2


@pytest.fixture(scope="module")
def gated(sim_device):
    """A chip of two cores whose kernel stubs have the gate, with fast dispatch."""
    return lambda: sim_device("2x1", overlays=sgdc.overlays(), dispatch="fast")


def stock_body(device, rows):
    """One trace with a gated matmul and add, and an ungated add of their result; what each replay left."""
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.compute_gate.op import OutcomeLog, clear_compute_gate, skip_compute

    def tile(value, **place):
        values = torch.full((32, 32), float(value))
        return ttnn.from_torch(values, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, **place)

    clear_compute_gate(device)
    log, priority = OutcomeLog(device, layers=1, users=2), programs.priorities(device, 2)
    ones, blank = tile(1, device=device), tile(0)
    product, sum_, after = (tile(0, device=device) for _ in range(3))

    def work():
        with skip_compute(priority, users=2, log=log, layer=0):
            ttnn.matmul(ones, ones, optional_output_tensor=product)
            ttnn.add(product, ones, output_tensor=sum_)
        ttnn.add(sum_, ones, output_tensor=after)

    work()
    entries = device.num_program_cache_entries()
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    work()
    ttnn.end_trace_capture(device, trace, cq_id=0)
    log.reset()
    found = []
    for row in rows:
        programs.write_priorities(priority, row)
        for tensor in (product, sum_, after):
            ttnn.copy_host_to_device_tensor(blank, tensor)
        ttnn.execute_trace(device, trace, cq_id=0, blocking=False)
        found.append([ttnn.to_torch(tensor).unique().tolist() for tensor in (product, sum_, after)])
    ttnn.release_trace(device, trace)
    return found, log.read()[0][0], device.num_program_cache_entries() - entries


def test_one_captured_trace_serves_every_outcome(gated):
    rows = [[2, 2], [0, 0], [1, 0], [0, 3], [0, 0], [3, 1], [0, 2]]
    found, log, new_programs = gated().run(stock_body, rows)
    ran, skipped = [[32.0], [33.0], [34.0]], [[0.0], [0.0], [1.0]]
    assert found == [skipped if reference.skips(row, 2) else ran for row in rows]
    counts = [reference.count(row, 2) for row in rows]
    assert {name: getattr(log, name) for name in counts[0]} == {
        name: sum(count[name] for count in counts) for name in counts[0]
    }
    assert new_programs == 0


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


def test_random_alternations_inside_replayed_traces(gated):
    draw = random.Random(24)
    traced = draw_traces(draw)
    count = 25  # of two alternations each
    replays = [(draw.randrange(TRACES), [draw_row(draw) for _ in range(REGIONS)]) for _ in range(count)]
    script = [(None, after) for _, after in traced]  # the runs that compile, and each replay, by the rules
    for trace, rows in replays:
        regions, after = traced[trace]
        script += [*zip(rows, regions, strict=True), (None, after)]
    history, expected = model(script)
    assert max(history[-1][1]) <= 256, "the sums must stay exact in bfloat16"
    seen, log, new_programs = gated().run(replay_body, traced, replays, 3, timeout=600)
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


def pair_body(mesh, steps):
    """One trace of the pair: an exchange, a gated matmul and add, an ungated add. After each replay of `steps` (each
    chip's priorities and value): the residual, the gathered priorities, and each chip's results; then who gave up."""
    import ttnn

    from tt_kernels.common.peer import ChipPairs, PeerError
    from tt_kernels.common.priority import priority_row
    from tt_kernels.compute_gate.op import clear_compute_gate, skip_compute
    from tt_kernels.device_exchange.op import DeviceExchange

    def a_chip_each(parts, dtype, layout, **place):
        mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
        return ttnn.from_torch(torch.cat(parts), dtype=dtype, layout=layout, mesh_mapper=mapper, **place)

    def tiles(values, **place):
        parts = [torch.full((1, 1, 32, 32), float(value)) for value in values]
        return a_chip_each(parts, ttnn.bfloat16, ttnn.TILE_LAYOUT, **place)

    def rows(values, **place):
        return a_chip_each([priority_row(row) for row in values], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, **place)

    def values_of(tensor):
        return [ttnn.to_torch(part).unique().tolist() for part in ttnn.get_device_tensors(tensor)]

    clear_compute_gate(mesh)
    exchange = DeviceExchange(ChipPairs(mesh, 1), users=USERS)
    residual, product, sum_, after, ones, mean = (tiles((v, v), device=mesh) for v in (0, 0, 0, 0, 1, 1 / 32))
    blank, priority = tiles((0, 0)), rows(([2] * USERS, [0] * USERS), device=mesh)

    def work():
        gathered = exchange(residual, priority)
        with skip_compute(priority, users=USERS):
            ttnn.matmul(residual, mean, optional_output_tensor=product)
            ttnn.add(product, ones, output_tensor=sum_)
        ttnn.add(sum_, ones, output_tensor=after)
        return gathered

    work()
    entries = mesh.num_program_cache_entries()
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    gathered = work()
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    found = []
    for priorities, values in steps:
        ttnn.copy_host_to_device_tensor(rows(priorities), priority)
        ttnn.copy_host_to_device_tensor(tiles(values), residual)
        for tensor in (product, sum_, after):
            ttnn.copy_host_to_device_tensor(blank, tensor)
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
        told = [ttnn.to_torch(part)[0, 0, :, :USERS].tolist() for part in ttnn.get_device_tensors(gathered)]
        found.append((values_of(residual), told, *map(values_of, (product, sum_, after))))
    ttnn.release_trace(mesh, trace)
    try:
        exchange.check()
        failure = None
    except PeerError as error:
        failure = str(error)
    return found, failure, mesh.num_program_cache_entries() - entries


@pytest.mark.timeout(900)
def test_one_trace_of_a_pair_serves_every_outcome(sim_mesh):
    """Chip 0 works and chip 1 skips, both work, chip 1 works and chip 0 skips, in turns."""
    rows = [([2, 2], [0, 0]), ([1, 1], [2, 0]), ([0, 0], [1, 2]), ([0, 3], [1, 1]), ([2, 2], [0, 0])]
    steps = [([list(row) for row in pair], (2 * i + 1, 2 * i + 2)) for i, pair in enumerate(rows)]
    mesh = sim_mesh((1, 2), "1x1", overlays=sgdc.overlays(), dispatch="fast")
    found, failure, new_programs = mesh.run(pair_body, steps, timeout=800)
    assert failure is None and new_programs == 0
    for number, ((priorities, values), seen) in enumerate(zip(steps, found, strict=True)):
        value = float(values[common_reference.sender(priorities, USERS)])
        skips = [reference.skips(row, USERS) for row in priorities]
        expected = [[value, value + 1, value + 2], [0.0, 0.0, 1.0]]  # run, skipped
        results = [[[expected[skip][i]] for skip in skips] for i in range(3)]
        assert seen == ([[value], [value]], [priorities, priorities], *results), f"replay {number}"
