# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""All-reduces between simulated chips that the gate skips, whose link is cut, or whose peer is silent or late."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runtime_patches import sgdc
from tests.support.run_op import Call, Make, priorities, run_ops
from tests.tt_kernels.all_reduce.calls import a_chip_each, call_of, reduce_of

COLUMNS = 64
IMPATIENCE_S = 2e-5  # 20,000 cycles
SILENT, NO_PACKET = "sent no rows", "the fabric link took no packet"
GATE = "tt_kernels.compute_gate.op"


def parts_of(value: float, chips: int = 2) -> torch.Tensor:
    """Return parts of one user that chip r fills with value + r."""
    return torch.stack([torch.full((1, 1, COLUMNS), value + rank) for rank in range(chips)]).bfloat16()


def same(op: Make, value: float, **options) -> Call:
    call = call_of(op, parts_of(value))
    call.links = options.pop("links", ())
    call.reset = options.pop("reset", False)
    return call


def sums(found: dict[str, Any]) -> list[float]:
    """Return what each chip holds, of which all columns are equal."""
    return [part.unique().item() for part in found["sum"].values()]


def message_of(found: dict[str, Any]) -> str | None:
    return found["errors"]["AllReduce"]


@pytest.mark.sim
def test_a_closed_gate_skips_it_on_all_chips(sim_mesh):
    """The next call meets its peer as if there had been none."""
    op, closed = reduce_of(1, COLUMNS), priorities(0, None)
    skipped = same(op, 1.0)
    skipped.inside = Make(f"{GATE}:skip_compute", closed, users=1, shared_gate_axis=1)
    calls = [Call(f"{GATE}:clear_compute_gate", device=True), same(op, 1.0), skipped, same(op, 5.0)]
    _, before, found, after = run_ops(sim_mesh((1, 2), "2x1", overlays=sgdc.overlays()), calls, timeout=300)
    assert sums(before) == [3.0] * 2 and sums(after) == [11.0] * 2
    assert [[state.calls for state in each["states"]["AllReduce"]] for each in (found, after)] == [[1, 1], [2, 2]]


# ------------------------------------------------------------------------------ faults


def alone(op, partial, chip) -> Any:
    """Launch a call in which only that chip takes part, in the worker."""
    op.coordinates = lambda: [chip]
    try:
        return op(partial)
    finally:
        del op.coordinates


def check_whole(worker) -> None:
    """Assert that the mesh opens again and carries an all-reduce."""
    worker.links.mend()
    worker.reopen()
    (found,) = run_ops(worker, [same(reduce_of(1, COLUMNS), 2.0)], timeout=300)
    assert message_of(found) is None and sums(found) == [5.0] * 2


@pytest.mark.sim
def test_a_cut_link_is_reported_by_both_chips_and_the_mesh_opens_again(sim_mesh):
    worker, op = sim_mesh((1, 2), "2x1"), reduce_of(1, COLUMNS, IMPATIENCE_S)
    calls = [same(op, 1.0), same(op, 2.0, links=[("cut", {})]), same(op, 3.0)]
    before, *cut = run_ops(worker, calls, timeout=300)
    assert message_of(before) is None and sums(before) == [3.0] * 2
    for found in cut:
        message = message_of(found)
        assert message.count("gave up in call 2") == 2 and (SILENT in message or NO_PACKET in message)
    check_whole(worker)


@pytest.mark.sim
def test_a_silent_peer_and_one_later_than_the_patience_are_reported(sim_mesh):
    """Chip 1 takes no part; then its packets take 50,000 cycles, and a chip waits for 20,000."""
    worker, op = sim_mesh((1, 2), "2x1"), reduce_of(1, COLUMNS, IMPATIENCE_S)
    call = Call(f"{__name__}:alone", op, a_chip_each(parts_of(1.0)), (0, 0))
    (found,) = run_ops(worker, [call], timeout=300)
    assert message_of(found) == "chip (0, 0) gave up in call 1: TP rank 1 sent no rows"
    late = reduce_of(1, COLUMNS, IMPATIENCE_S)
    (found,) = run_ops(worker, [same(late, 1.0, links=[("delay", {"latency": 50_000})])], timeout=300)
    assert message_of(found).count("gave up in call 1") == 2 and SILENT in message_of(found)
    check_whole(worker)
