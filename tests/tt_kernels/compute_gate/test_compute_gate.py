# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The compute gate on the simulated N150: what a skipped program leaves alone, and who is never skipped."""

from __future__ import annotations

import pytest
import torch

from runtime_patches import sgdc

pytestmark = pytest.mark.sim


@pytest.fixture(scope="module")
def gated(sim_device):
    """A chip of two cores whose kernel stubs have the gate."""
    return lambda: sim_device("2x1", overlays=sgdc.overlays())


def tile(device, values):
    import ttnn

    return ttnn.from_torch(values, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)


def untouched_body(device):
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.priority import HOLDS_EXACT, YIELDED
    from tt_kernels.compute_gate.op import clear_compute_gate, skip_compute

    clear_compute_gate(device)
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 0))])
    semaphore = ttnn.create_global_semaphore(device, cores, 0)
    counter = ttnn.get_global_semaphore_address(semaphore)
    other = device.worker_core_from_logical_core(ttnn.CoreCoord(1, 0))
    output, view = programs.words(device, 3), programs.words(device, 4)
    closed, opened = programs.priorities(device, YIELDED), programs.priorities(device, HOLDS_EXACT)

    def run(row, seed):
        programs.stamp(output, row, seed, counter=counter, other=(other.x, other.y))

    def look():
        """The circular buffer, and the semaphore on both cores."""
        address = int(ttnn.to_torch(output)[0, 0, 0, 0]) & 0xFFFFFFFF
        programs.probe(view, address, programs.PAGE_BYTES, 0)
        for row, core in ((1, (0, 0)), (2, (1, 0))):
            programs.probe(view, counter, 32, row, core)
        seen = ttnn.to_torch(view)[0, 0].to(torch.int64)
        return seen[0], [int(seen[1, 0]), int(seen[2, 0])], ttnn.to_torch(output)[0, 0].to(torch.int64)

    run(0, 1000)
    first = look()
    with skip_compute(closed, users=1):
        run(1, 2000)
    skipped = look()
    with skip_compute(opened, users=1):
        run(1, 3000)
    gate_open = look()
    run(2, 4000)
    return first, skipped, gate_open, look()


def test_a_skipped_program_leaves_outputs_buffers_and_semaphores(gated):
    first, skipped, gate_open, after = gated().run(untouched_body)

    def row(seed):
        return torch.arange(seed, seed + 64)[1:]

    assert torch.equal(first[0][1:], row(1000)) and first[1] == [1, 1]
    assert torch.equal(skipped[0], first[0]), "the skipped program wrote its circular buffer"
    assert skipped[1] == [1, 1], "the skipped program counted in a semaphore"
    assert torch.equal(skipped[2], first[2]), "the skipped program wrote its output"
    assert torch.equal(gate_open[0][1:], row(3000)) and gate_open[1] == [2, 2]
    assert torch.equal(gate_open[2][1, 1:], row(3000))
    assert torch.equal(after[0][1:], row(4000)) and after[1] == [3, 3]
    assert torch.equal(after[2][2, 1:], row(4000))
    assert torch.equal(after[2][:2], gate_open[2][:2])


def mixed_body(device, two_cores):
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.priority import HOLDS_GUESS, YIELDED
    from tt_kernels.compute_gate.op import clear_compute_gate, skip_compute

    clear_compute_gate(device)
    output = programs.words(device, 3)
    target = device.worker_core_from_logical_core(ttnn.CoreCoord(0, 0))
    where = {"target": (target.x, target.y), "signaller": (1, 0) if two_cores else None}
    for row, value in ((0, YIELDED), (1, HOLDS_GUESS)):
        with skip_compute(programs.priorities(device, value), users=1):
            programs.watched_signal(output, row, **where)
    programs.watched_signal(output, 2, **where)
    return ttnn.to_torch(output)[0, 0, :, :2].tolist()


@pytest.mark.parametrize("two_cores", [False, True], ids=["two RISCs of a core", "two cores"])
def test_a_kernel_that_opted_out_runs_beside_one_that_is_skipped(gated, two_cores):
    closed, opened, outside = gated().run(mixed_body, two_cores)
    assert closed == [1, 0], "it ran, and the semaphore of its program kept its initial value"
    assert opened == outside == [1, 1]


def opted_out_body(device):
    """What each RISC of a compute kernel has counted after each launch under a closed gate, and at its end."""
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.cores import core_set
    from tt_kernels.compute_gate.op import clear_compute_gate, skip_compute

    clear_compute_gate(device)
    view, closed = programs.words(device, 3), programs.priorities(device, 0)
    semaphores = [ttnn.create_global_semaphore(device, core_set((0, 0)), 0) for _ in range(3)]
    addresses = [ttnn.get_global_semaphore_address(semaphore) for semaphore in semaphores]

    def run(**how):
        programs.count(view, addresses, **how)
        for row, address in enumerate(addresses):
            programs.probe(view, address, 32, row)
        return ttnn.to_torch(view)[0, 0, :, 0].tolist()

    with skip_compute(closed, users=1):
        found = [run(), run(defines=programs.UNGATED), run(head="#define SGDC_UNGATED 1\n")]
    return [*found, run()]


def test_a_compute_kernel_is_skipped_on_its_three_riscs_unless_it_opted_out(gated):
    gate_closed, by_descriptor, by_source, gate_open = gated().run(opted_out_body)
    assert gate_closed == [0, 0, 0]
    assert by_descriptor == [1, 1, 1]
    assert by_source == [2, 2, 2], "a define in the kernel's source counts as one of its descriptor"
    assert gate_open == [3, 3, 3]


def stock_body(device, name):
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.priority import HOLDS_EXACT, YIELDED
    from tt_kernels.compute_gate.op import clear_compute_gate, skip_compute

    clear_compute_gate(device)
    torch.manual_seed(7)
    a, b = (tile(device, torch.randn(32, 64).bfloat16()) for _ in range(2))
    weights = tile(device, torch.randn(64, 32).bfloat16())
    ops = {
        "add": lambda out: ttnn.add(a, b, output_tensor=out),
        "matmul": lambda out: ttnn.matmul(a, weights, optional_output_tensor=out),
        "silu": lambda out: ttnn.silu(a, output_tensor=out),
        "rms_norm": lambda out: ttnn.rms_norm(a),
    }
    width = 32 if name == "matmul" else 64
    expected = {
        "add": lambda: ttnn.to_torch(a).float() + ttnn.to_torch(b).float(),
        "matmul": lambda: ttnn.to_torch(a).float() @ ttnn.to_torch(weights).float(),
        "silu": lambda: torch.nn.functional.silu(ttnn.to_torch(a).float()),
        "rms_norm": lambda: torch.nn.functional.rms_norm(ttnn.to_torch(a).float(), (64,)),
    }[name]()
    blank = torch.full((32, width), 3.0).bfloat16()
    priority = programs.priorities(device, HOLDS_EXACT)
    results, entries = [], []
    for value in (HOLDS_EXACT, YIELDED, HOLDS_EXACT, YIELDED):
        programs.write_priorities(priority, value)
        out = tile(device, blank)
        place = out.buffer_address()
        if name == "rms_norm":  # it takes no output tensor, but is given the memory that was freed last
            ttnn.deallocate(out)
        with skip_compute(priority, users=1):
            result = ops[name](out)
        assert result.buffer_address() == place, "the op must write where the blank lies"
        results.append(ttnn.to_torch(result).float())
        entries.append(device.num_program_cache_entries())
        ttnn.deallocate(result)
    return results, entries, expected


@pytest.mark.parametrize("name", ["add", "matmul", "silu", "rms_norm"])
def test_stock_ops_are_skipped_and_run_from_one_cache_entry(gated, name):
    results, entries, expected = gated().run(stock_body, name)
    for number, result in enumerate(results):
        if number % 2:
            assert torch.equal(result, torch.full_like(result, 3.0)), "the op ran although its chip has priority 0"
        else:
            pcc = torch.corrcoef(torch.stack([result.flatten(), expected.flatten()]))[0, 1].item()
            assert pcc > 0.999, f"PCC {pcc}, largest error {(result - expected).abs().max().item()}"
    assert torch.equal(results[0], results[2])
    assert len(set(entries)) == 1, f"the program cache grew: {entries}"


def users_body(device, rows):
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.compute_gate.op import OutcomeLog, clear_compute_gate, skip_compute

    clear_compute_gate(device)
    output, log = programs.words(device, len(rows)), OutcomeLog(device, layers=3, users=4)
    for number, values in enumerate(rows):
        with skip_compute(programs.priorities(device, values), users=4, log=log, layer=number % 2):
            programs.stamp(output, number, 100)
    ran = (ttnn.to_torch(output)[0, 0, :, 1] != 0).tolist()
    counted = log.read()
    log.reset()
    # Without users=: all that a row can hold, or those of the log.
    last = programs.priorities(device, [0] * 31 + [2])
    for number, options in enumerate(({}, {"log": log, "layer": 2})):
        with skip_compute(last, **options):
            programs.stamp(output, number, 200)
    by_default = (ttnn.to_torch(output)[0, 0, :2, 1] == 201).tolist()
    logged = log.read()
    log.reset()
    return ran, counted, by_default, logged, log.read()


def test_one_user_above_zero_keeps_the_chip_at_work_and_outcomes_are_counted(gated):
    rows = [[0, 0, 0, 0], [0, 0, 2, 0], [1, 1, 1, 1], [0, 3, 0, 2], [0, 0, 0, 0, 2, 2]]
    ran, (counted,), by_default, (logged,), (cleared,) = gated().run(users_body, rows)
    assert ran == [False, True, True, True, False], "only the first four entries are users"
    even, odd, unused = counted
    assert (even.calls, even.accepted, even.received, even.rejected, even.bypassed) == (3, 8, 4, 0, 0)
    assert (odd.calls, odd.accepted, odd.received, odd.rejected, odd.bypassed) == (2, 5, 0, 2, 1)
    assert even.last == (0, 0, 0, 0) and odd.last == (0, 3, 0, 2)
    assert odd.hit_rate == 5 / 7 and unused.hit_rate is None
    assert by_default == [True, False], "the last of 32 users works, but is none of the log's four"
    assert (logged[2].calls, logged[2].accepted) == (1, 4)
    assert unused.calls == 0 and all(row.calls == 0 and row.last == (0, 0, 0, 0) for row in cleared)


def exception_body(device):
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.compute_gate.op import clear_compute_gate, set_compute_gate, skip_compute
    from tt_kernels.compute_gate.region import active_region

    clear_compute_gate(device)
    output, closed = programs.words(device, 3), programs.priorities(device, 0)
    try:
        with skip_compute(closed, users=1):
            programs.stamp(output, 0, 100)
            raise KeyError("from inside")
    except KeyError:
        programs.stamp(output, 1, 100)
    set_compute_gate(closed, users=1)  # a program that ends here leaves the gate closed in L1
    programs.stamp(output, 2, 100)
    left_closed = ttnn.to_torch(output)[0, 0, :, 1].tolist()
    clear_compute_gate(device)
    programs.stamp(output, 2, 100)
    return left_closed, ttnn.to_torch(output)[0, 0, :, 1].tolist(), active_region()


def test_the_gate_opens_after_an_exception_and_when_it_was_left_closed(gated):
    left_closed, cleared, region = gated().run(exception_body)
    assert left_closed == [0, 101, 0]
    assert cleared == [0, 101, 101]
    assert region is None


def define_body(device):
    import ttnn

    from tests.tt_kernels.compute_gate import sgdc_programs as programs
    from tt_kernels.common.ungated import require_ungated
    from tt_kernels.compute_gate import op

    priority = programs.priorities(device, 0)
    messages = []
    for program in (op.closing_program(priority, 1), op.opening_program(op.all_worker_cores(device))):
        for kernel in program.kernels:
            kernel.defines = [define for define in kernel.defines if define[0] != "SGDC_UNGATED"]
        for attempt in (
            lambda: require_ungated(program, "compute_gate"),  # noqa: B023
            lambda: ttnn.generic_op([priority, priority], program),  # noqa: B023
        ):
            try:
                attempt()
                messages.append("not refused")
            except RuntimeError as error:
                messages.append(str(error))
    return messages


def test_a_gate_writer_without_its_define_is_caught(gated):
    for number, message in enumerate(gated().run(define_body)):
        part = "must be compiled with SGDC_UNGATED" if number % 2 else "kernels without SGDC_UNGATED"
        assert part in message
