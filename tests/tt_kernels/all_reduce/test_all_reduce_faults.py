# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""All-reduces between simulated chips call after call, in traces, skipped by the gate; whose link is cut, or whose peer
is silent or late; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runtime_patches import sgdc
from tests.support.run_op import Call, In, Make, priorities, refusals, run_ops
from tests.tt_kernels.all_reduce.test_all_reduce_mesh import a_chip_each, call_of, check, draw, reduce_of

COLUMNS, REPLAYS = 64, 100
IMPATIENCE_S = 2e-5  # 20,000 cycles
SILENT, NO_PACKET = "sent no rows", "the fabric link took no packet"
OP, GATE = "tt_kernels.all_reduce.op:AllReduce", "tt_kernels.compute_gate.op"


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
def test_a_hundred_replays_of_a_trace(sim_mesh):
    """Each has values of its own, so that a call that was left out, or rows of an earlier one, are seen."""
    op, drawn = reduce_of(1, COLUMNS), [draw(seed, 2, 1, COLUMNS) for seed in range(REPLAYS)]
    calls = [call_of(op, parts, residual, norm) for parts, residual, norm in drawn]
    results = run_ops(sim_mesh((1, 2), "2x1", dispatch="fast"), calls, traced=True, timeout=500)
    for each, found in zip(drawn, results, strict=True):
        check(found, *each)
    assert [state.calls for state in results[-1]["states"]["AllReduce"]] == [REPLAYS + 1] * 2
    assert len({found["entries"] for found in results}) == 1


@pytest.mark.sim
@pytest.mark.parametrize("users", [1, 3])
def test_four_chips(sim_mesh, users):
    """Those in the middle send both ways."""
    op, drawn = reduce_of(users, COLUMNS), [draw(seed, 4, users, COLUMNS) for seed in range(2)]
    results = run_ops(sim_mesh((1, 4), "2x1"), [call_of(op, *each) for each in drawn], timeout=500)
    for each, found in zip(drawn, results, strict=True):
        check(found, *each)


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


# ------------------------------------------------------------------------------ refusals


@pytest.mark.mock_mesh
def test_what_is_refused_is_named(mock_mesh):
    zeros, op = torch.zeros(1, 1, 3, 128), Make(OP, 3, 128, device=True)

    def call(values=zeros, dtype="bfloat16", layout=None, **options) -> Call:
        return Call(op, In(values, dtype, layout=layout), **options)

    row = "must be bfloat16 TILE (1, 1, 3, 128), it is"
    calls = {
        "users must be 1 to 32, not 33": Call(OP, 33, 128, device=True),
        "users must be 1 to 32, not 0": Call(OP, 0, 128, device=True),
        "columns must be a positive multiple of 32, not 100": Call(OP, 1, 100, device=True),
        "TP groups along axis 0 need a mesh with 2 to 8 chips there; its shape is (1, 2)": Call(
            OP, 1, 128, tp_axis=0, device=True
        ),
        "core (8, 0) is outside the grid": Call(OP, 1, 128, core=(8, 0), device=True),
        "a timeout is a positive, finite number of seconds, not -1": Call(OP, 1, 128, timeout_s=-1, device=True),
        f"partial {row} BFLOAT16 TILE (1, 1, 2, 128)": call(zeros[:, :, :2]),
        f"partial {row} FLOAT32 TILE (1, 1, 3, 128)": call(dtype="float32"),
        f"partial {row} BFLOAT16 ROW_MAJOR (1, 1, 3, 128)": call(layout="ROW_MAJOR"),
        f"residual {row} BFLOAT16 TILE (1, 1, 3, 64)": call(residual=In(zeros[..., :64])),
        "norm must be bfloat16 TILE (1, 1, 1, 128), it is BFLOAT16 TILE (1, 1, 3, 128)": call(norm=In(zeros)),
        "epsilon is a positive, finite number, not 0": call(norm=In(zeros[:, :, :1]), epsilon=0),
        "partial must be on the device": Call(op, In(zeros, memory="HOST")),
        "partial has been deallocated": Call(op, In(zeros, gone=True)),
        "partial is a ttnn.Tensor, not 3": Call(op, 3),
    }
    for said, message in refusals(mock_mesh((1, 2)), calls).items():
        assert message.startswith(f"ValueError: {said}"), message


@pytest.mark.mock_mesh
@pytest.mark.parametrize("users", [1, 32])
def test_it_builds_at_llama_shapes_on_eight_chips_and_only_where_the_gate_is_shared(mock_mesh, users):
    mesh = mock_mesh((1, 8), overlays=sgdc.overlays())
    op, zeros = Make(OP, users, 4096, device=True), In(torch.zeros(1, 1, users, 4096))
    norm = In(torch.zeros(1, 1, 1, 4096))
    (found,) = run_ops(mesh, [Call(op, zeros, residual=zeros, norm=norm)])
    assert [tuple(part.shape) for part in found["normed"].values()] == [(1, 1, users, 4096)] * 8
    inside = Call(op, zeros)
    inside.inside = Make(f"{GATE}:skip_compute", priorities(2, None), users=1)
    message = refusals(mesh, {"": inside})[""]
    assert message.startswith("GatedRegionError: all_reduce (cluster_axis=1) is a cross-chip op")
