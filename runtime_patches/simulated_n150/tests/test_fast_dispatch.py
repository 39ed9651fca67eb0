# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Fast dispatch on the simulated chip: stock programs, events, transfers, traces and two command queues."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.sim

SHAPE = (64, 64)


def numbers(seed: int, shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    """Whole numbers of at most 3, so that sums of their products are exact."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def tiled(x: torch.Tensor, device=None):
    import ttnn

    return ttnn.from_torch(x, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)


def run_programs(device, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
    import ttnn

    x, y = tiled(a, device), tiled(b, device)
    made = {
        "add": ttnn.add(x, y),
        "matmul": ttnn.matmul(x, y),
        "softmax": ttnn.softmax(x, dim=-1),
        "sum": ttnn.sum(x, dim=-1),
        "again": ttnn.add(ttnn.matmul(x, y), y),
    }
    ttnn.synchronize_device(device)
    return {name: ttnn.to_torch(tensor) for name, tensor in made.items()}


@pytest.mark.parametrize("grid", ["1x1", "2x2"])
def test_stock_programs_give_what_slow_dispatch_gives(sim_device, on_silicon, grid):
    a, b = numbers(1), numbers(2)
    fast = sim_device(grid, dispatch="fast").run(run_programs, a, b)
    assert torch.equal(fast["add"], a + b)
    assert torch.equal(fast["matmul"], (a.float() @ b.float()).bfloat16())
    if not on_silicon:
        slow = sim_device(grid).run(run_programs, a, b)
        assert all(torch.equal(fast[name], slow[name]) for name in slow)


def transfer(device, contents: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Each tensor there and back, fresh, and by way of one tensor written in place before each of two events."""
    import ttnn

    back = [ttnn.to_torch(tiled(x, device)) for x in contents]
    held, seen = tiled(torch.zeros_like(contents[0]), device), []
    for x in contents[:3]:
        ttnn.copy_host_to_device_tensor(tiled(x), held)
        ttnn.event_synchronize(ttnn.record_event(device, 0))
        doubled = ttnn.add(held, held)
        ttnn.synchronize_device(device)
        seen.append(ttnn.to_torch(doubled))
    return back, seen


def test_transfers_and_events(sim_device):
    contents = [numbers(i, shape) for i, shape in enumerate([(64, 64)] * 3 + [(256, 256), (32, 2048)])]
    back, seen = sim_device("1x1", dispatch="fast").run(transfer, contents)
    assert all(torch.equal(x, y) for x, y in zip(contents, back, strict=True))
    assert all(torch.equal(x + x, y) for x, y in zip(contents[:3], seen, strict=True))


def replay(device, steps: list[tuple[torch.Tensor, torch.Tensor]]) -> dict:
    """A trace of an add and a matmul, replayed with new inputs each time; the same dispatched; programs cached."""
    import ttnn

    x, y = (tiled(part, device) for part in steps[0])

    def work():
        return ttnn.matmul(ttnn.add(x, y), y)

    work()
    entries = [device.num_program_cache_entries()]
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    output = work()
    ttnn.end_trace_capture(device, trace, cq_id=0)
    found = {"replayed": [], "dispatched": []}
    for kind in found:
        for a, b in steps:
            ttnn.copy_host_to_device_tensor(tiled(a), x)
            ttnn.copy_host_to_device_tensor(tiled(b), y)
            if kind == "replayed":
                ttnn.execute_trace(device, trace, cq_id=0, blocking=False)
                found[kind].append(ttnn.to_torch(output))
            else:
                found[kind].append(ttnn.to_torch(work()))
        entries.append(device.num_program_cache_entries())
    ttnn.release_trace(device, trace)
    return found | {"entries": entries}


def test_a_replayed_trace_does_what_the_dispatched_programs_do(sim_device, on_silicon):
    steps = [(numbers(2 * i), numbers(2 * i + 1)) for i in range(4)]
    expected = [((a + b).float() @ b.float()).bfloat16() for a, b in steps]
    found = sim_device("1x1", dispatch="fast").run(replay, steps)
    assert len(set(found["entries"])) == 1
    for replayed, dispatched, right in zip(found["replayed"], found["dispatched"], expected, strict=True):
        assert torch.equal(replayed, dispatched) and torch.equal(replayed, right)
    if on_silicon:
        return
    # Another chip of the same kind: a worker is shared by those who ask for the same variables.
    other = sim_device("1x1", dispatch="fast", variables={"LLAMA_ALSPEC_TEST": "second run"})
    again = other.run(replay, steps)
    for kind in ("replayed", "dispatched"):
        assert all(torch.equal(x, y) for x, y in zip(found[kind], again[kind], strict=True))


def two_queues(device, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Inputs written by queue 1 while queue 0 runs an op and a trace on the one before; events keep them in order."""
    import ttnn

    held, outputs = tiled(torch.zeros_like(inputs[0]), device), []
    ttnn.add(held, held)
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    output = ttnn.add(held, held)
    ttnn.end_trace_capture(device, trace, cq_id=0)
    done = ttnn.record_event(device, 0)
    for number, x in enumerate(inputs):
        ttnn.wait_for_event(1, done)
        ttnn.copy_host_to_device_tensor(tiled(x), held, cq_id=1)
        ttnn.wait_for_event(0, ttnn.record_event(device, 1))
        if number % 2:
            ttnn.execute_trace(device, trace, cq_id=0, blocking=False)
            made = output
        else:
            made = ttnn.add(held, held, queue_id=0)
        done = ttnn.record_event(device, 0)
        outputs.append(ttnn.to_torch(made))
    ttnn.release_trace(device, trace)
    return outputs


def test_two_command_queues(sim_device):
    inputs = [numbers(i) for i in range(4)]
    device = sim_device("1x1", dispatch="fast", options={"num_command_queues": 2})
    outputs = device.run(two_queues, inputs)
    assert all(torch.equal(x + x, y) for x, y in zip(inputs, outputs, strict=True))


def test_another_dispatch_is_refused(sim_device):
    with pytest.raises(ValueError, match="slow or fast, got 'quick'"):
        sim_device("1x1", dispatch="quick")
