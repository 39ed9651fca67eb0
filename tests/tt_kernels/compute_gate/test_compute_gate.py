# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The compute gate on the simulated N150: what a skipped program leaves alone, and who is never skipped."""

from collections import Counter
from typing import Any
from unittest import mock

import pytest
import torch

from runtime_patches import sgdc
from runtime_patches.simulated_n150.testing.tensors import correlation
from tests.support.run_op import Call, In, Make, World, priorities, run_ops, words
from tt_kernels.common.priority import HOLDS_EXACT, YIELDED
from tt_kernels.compute_gate import reference

pytestmark = pytest.mark.sim

PROGRAMS, OP = "tests.tt_kernels.compute_gate.programs", "tt_kernels.compute_gate.op"


@pytest.fixture(scope="module")
def gated(sim_device):
    """A chip of two cores whose kernel stubs have the gate."""
    return lambda grid="2x1": sim_device(grid, overlays=sgdc.overlays())


def rows(count: int, name: str = "rows") -> In:
    return words(torch.zeros(1, 1, count, 64), "uint32", read=name)


def gate(row, users: int = 1, **options) -> Make:
    """Return a region under a chip's priorities."""
    return Make(f"{OP}:skip_compute", row if isinstance(row, In) else priorities(row, None), users=users, **options)


def launch(name: str, *arguments, inside: Make | None = None, **options) -> Call:
    return Call(f"{PROGRAMS}:{name}", *arguments, inside=inside, **options)


def test_a_skipped_program_leaves_outputs_buffers_and_semaphores(gated):
    output, view, counter = rows(3, "output"), rows(4, "view"), Make(f"{PROGRAMS}:Counter", device=True)
    calls = []
    for row, seed, inside in ((0, 1000, None), (1, 2000, gate(YIELDED)), (1, 3000, gate(HOLDS_EXACT)), (2, 4000, None)):
        calls.append(launch("stamp", output, row, seed, counter=counter, inside=inside))
        # The circular buffer, and the semaphore on both cores.
        calls.append(launch("look", output, view, counter))
    seen = []
    for found in run_ops(gated(), calls)[1::2]:
        view_rows = found["view"][0, 0]
        seen.append((view_rows[0], view_rows[1:3, 0].tolist(), found["output"][0, 0]))
    first, skipped, gate_open, after = seen

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


def test_a_compute_kernel_is_skipped_on_its_three_riscs_unless_it_opted_out(gated):
    view, counters = rows(3), [Make(f"{PROGRAMS}:Counter", device=True) for _ in range(3)]
    calls = [
        launch("count", view, counters, inside=gate(YIELDED)),
        launch("count", view, counters, inside=gate(YIELDED), defines=[("SGDC_UNGATED", "1")]),
        launch("count", view, counters, inside=gate(YIELDED), source="count_ungated.cpp"),
        launch("count", view, counters),
    ]
    counted = [found["rows"][0, 0, :, 0].tolist() for found in run_ops(gated(), calls)]
    # A define in the kernel's source counts as one of its descriptor.
    assert counted == [[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]]


def test_stock_ops_are_skipped_and_run_from_one_cache_entry(gated):
    torch.manual_seed(7)
    a, b, weights = (torch.randn(shape).bfloat16().float() for shape in ((32, 64), (32, 64), (64, 32)))
    x, y, w = In(a), In(b), In(weights)
    ops: dict[str, tuple[torch.Tensor, list[In], str]] = {
        "add": (a + b, [x, y], "output_tensor"),
        "matmul": (a @ weights, [x, w], "optional_output_tensor"),
        "silu": (torch.nn.functional.silu(a), [x], "output_tensor"),
    }
    for name, (expected, given, output) in ops.items():
        calls = [
            Call(f"ttnn:{name}", *given, inside=gate(value), **{output: In(torch.full(expected.shape, 3.0))})
            for value in (HOLDS_EXACT, YIELDED, HOLDS_EXACT, YIELDED)
        ]
        results = run_ops(gated(), calls)
        for found in results[1::2]:
            assert (found["out"] == 3).all(), f"{name} ran although its chip has priority 0"
        for found in results[::2]:
            assert correlation(found["out"], expected) > 0.999, name
        assert torch.equal(results[0]["out"], results[2]["out"])
        assert len({found["entries"] for found in results}) == 1, f"{name}: the program cache grew"


def counts(log) -> dict[str, Any]:
    """Return what a log counted of each layer, and reset it."""
    (found,) = log.read()
    log.reset()
    return dict(enumerate(found))


def test_one_user_above_zero_keeps_the_chip_at_work_and_outcomes_are_counted(gated):
    work = [[0, 0, 0, 0], [0, 0, 2, 0], [1, 1, 1, 1], [0, 3, 0, 2], [0, 0, 0, 0, 2, 2]]
    output, log = rows(7), Make(f"{OP}:OutcomeLog", layers=3, users=4, device=True)
    calls = [
        launch("stamp", output, number, 100, inside=gate(row, 4, log=log, layer=number % 2))
        for number, row in enumerate(work)
    ]
    calls.append(Call(f"{__name__}:counts", log))
    # Without users=: all that a row can hold, or those of the log.
    last = priorities([0] * 31 + [2], None)
    for number, options in enumerate(({}, {"log": log, "layer": 2})):
        calls.append(launch("stamp", output, 5 + number, 200, inside=Make(f"{OP}:skip_compute", last, **options)))
    calls += [Call(f"{__name__}:counts", log)] * 2
    *_, counted, _, by_default, logged, cleared = run_ops(gated(), calls)
    ran = (by_default["rows"][0, 0, :, 1] != 0).tolist()
    assert ran[:5] == [not reference.skips(row, 4) for row in work] == [False, True, True, True, False]
    even, odd, unused = counted["out"].values()
    for first, found in enumerate((even, odd)):
        expected = sum((Counter(reference.count(row, 4)) for row in work[first::2]), Counter(calls=len(work[first::2])))
        for name in ("calls", "accepted", "received", "rejected", "bypassed", "invalid"):
            assert getattr(found, name) == expected[name], name
    assert even.last == (0, 0, 0, 0) and odd.last == (0, 3, 0, 2)
    assert ran[5:] == [True, False], "the last of 32 users works, but is none of the log's four"
    assert (logged["out"][2].calls, logged["out"][2].accepted) == (1, 4)
    assert unused.calls == 0
    assert all(row.calls == 0 and row.last == (0, 0, 0, 0) for row in cleared["out"].values())


# ------------------------------------------------------------------------------ a gate that was left closed


def exception_body(device):
    import ttnn

    from models.llama31_8b.tt.mesh import MeshShape
    from tests.tt_kernels.compute_gate import programs
    from tt_kernels.compute_gate.op import clear_compute_gate, set_compute_gate, skip_compute
    from tt_kernels.compute_gate.region import active_region

    clear_compute_gate(device)
    output, closed = map(World(device).put, (rows(4), priorities(0)))
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
    set_compute_gate(closed, users=1)
    with (
        mock.patch.object(ttnn, "open_mesh_device", lambda shape: device),
        mock.patch.object(ttnn, "get_num_devices", lambda: 1),
    ):
        MeshShape().open()
    programs.stamp(output, 3, 100)
    return left_closed, ttnn.to_torch(output)[0, 0, :, 1].tolist(), active_region()


def test_the_gate_opens_after_an_exception_and_when_it_was_left_closed(gated):
    """By the op, and when the model opens its mesh."""
    left_closed, cleared, region = gated().run(exception_body)
    assert left_closed == [0, 101, 0, 0]
    assert cleared == [0, 101, 101, 101]
    assert region is None


def define_body(device):
    import ttnn

    from tt_kernels.common.kernel import require_ungated
    from tt_kernels.compute_gate import op

    priority = World(device).put(priorities(0))
    messages = []
    for program in (op.closing_program(priority, 1), op.opening_program(op.all_worker_cores(device))):
        for kernel in program.kernels:
            kernel.defines = [define for define in kernel.defines if define[0] != "SGDC_UNGATED"]
        for attempt in (
            lambda: require_ungated(program, "compute_gate"),
            lambda: ttnn.generic_op([priority, priority], program),
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
