# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""All-reduces over the fabric between simulated chips, against float64; those that the gate skips, whose link is cut,
or whose peer is silent or late; and what is refused."""

from typing import Any

import pytest
import torch

from perf.lib.tensors import errors_of
from runtime_patches import sgdc
from tests.support.run_op import Call, In, Make, banks, check_refused, priorities, refusals, run_ops, shards
from tt_kernels.all_reduce import reference

PATIENCE_S = 2e-3
EPSILON = 1e-5
HALF_STEP = 2.0**-8  # of bfloat16's rounding, relative


def reduce_of(users: int, columns: int, timeout_s: float = PATIENCE_S, **options) -> Make:
    return Make("tt_kernels.all_reduce.op:AllReduce", users, columns, timeout_s=timeout_s, device=True, **options)


def a_chip_each(parts: torch.Tensor, **options) -> In:
    """Return an In of [chips, 1, users, columns], a part for each chip of a row."""
    chips, _, users, columns = parts.shape
    return In(parts.reshape(1, chips, users, columns), split=(None, 1), **options)


def call_of(op: Make, parts: torch.Tensor, residual=None, norm=None, memory: Any = "DRAM", **options) -> Call:
    """Return a call. parts: [chips, 1, users, columns]; residual: [1, users, columns]; norm: [columns]."""
    given: dict[str, Any] = {"epsilon": EPSILON} | options
    if residual is not None:
        given["residual"] = In(residual.reshape(1, 1, *residual.shape[-2:]), memory=memory)
    if norm is not None:
        given["norm"] = In(norm.reshape(1, 1, 1, -1))
    return Call(op, a_chip_each(parts, memory=memory), **given)


def same_on_all_chips(found: dict[tuple[int, int], torch.Tensor]) -> torch.Tensor:
    """Return a result's rows, [users, columns], and hold the chips' bits against each other."""
    first, *others = found.values()
    for other in others:
        assert torch.equal(other.view(torch.int16), first.view(torch.int16)), "chips have different bits"
    return first[0, 0]


def check(found: dict[str, Any], parts, residual=None, norm=None) -> None:
    assert found["errors"]["AllReduce"] is None
    total, normed = reference.all_reduce(list(parts[:, 0]), None if residual is None else residual[0], norm, EPSILON)
    # What cancels costs float32's precision of the largest part alone.
    largest = torch.cat([parts[:, 0], *([] if residual is None else [residual])]).double().abs().amax(dim=0)
    error = (same_on_all_chips(found["sum"]).double() - total).abs()
    assert (error <= HALF_STEP * total.abs() + 2.0**-20 * largest).all(), error.max()
    if norm is not None:
        # No bfloat16 is nearer to float64's but for float32's own rounding.
        relative = (same_on_all_chips(found["normed"]).double() - normed).abs() / normed.abs().clamp_min(1e-6)
        assert relative.max() < 1.02 * HALF_STEP, relative.max()


def draw(seed: int, chips: int, users: int, columns: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return parts, residual and weights of the norm."""
    generator = torch.Generator().manual_seed(seed)
    parts = torch.randn(chips, 1, users, columns, generator=generator).bfloat16()
    residual = (3 * torch.randn(1, users, columns, generator=generator)).bfloat16()
    return parts, residual, (1 + 0.2 * torch.randn(columns, generator=generator)).bfloat16()


@pytest.mark.sim
@pytest.mark.parametrize(
    ("users", "columns", "given", "memory"),
    [
        (1, 128, ("residual", "norm"), shards(4, 32)),
        (1, 96, (), "DRAM"),
        (3, 96, ("residual",), "L1"),
        (16, 128, ("norm",), shards(4, 32)),
        (17, 96, ("residual", "norm"), "L1"),
        (32, 192, ("residual", "norm"), "DRAM"),  # several packets for a worker
    ],
)
def test_sum_residual_and_norm(sim_mesh, users, columns, given, memory):
    """From one row to whole tiles; two workers with several tiles each, or three with one; interleaved, and in shards
    of which a worker has two."""
    parts, *both = draw(users, 2, users, columns)
    form = {name: tensor for name, tensor in zip(("residual", "norm"), both, strict=True) if name in given}
    (found,) = run_ops(sim_mesh((1, 2), "2x2"), [call_of(reduce_of(users, columns), parts, **form, memory=memory)])
    check(found, parts, **form)


@pytest.mark.sim
def test_the_norm_is_multiplied_as_decode_product_does_it(sim_mesh):
    """Of one user, packed, and of several; blocks that wait for rows in all slots, or in three; columns that stay
    in the registers and that are added up in L1. Bits of the sum and the norm are those of a call without a product."""
    worker, columns = sim_mesh((1, 2), "8x8"), 256
    cases = [(1, (23 * 32, 64), "bfloat8_b"), (5, (31 * 32, 11 * 32), "bfloat4_b")]
    for users, (outputs, of_bank), dtype in cases:
        drawn, memory = draw(users, 2, users, columns), shards(8, 32)
        values = torch.randn(1, 1, columns, outputs, generator=torch.Generator().manual_seed(outputs))
        weight, result = (
            In(values, dtype, memory=banks(columns, of_bank), read="weight"),
            shards(-(-outputs // 128), 128),
        )
        op, plain = reduce_of(users, columns, multiplies=True), reduce_of(users, columns)
        calls = [call_of(op, *drawn, memory=memory, multiply=(weight, result)), call_of(plain, *drawn, memory=memory)]
        # Twice: in the other slot, and from the program cache.
        first, alone, again = run_ops(worker, [*calls, calls[0]])
        check(first, *drawn)
        for name in ("sum", "normed", "product"):
            bits = same_on_all_chips(first[name])
            for found in (alone, again)[name == "product" :]:
                assert torch.equal(same_on_all_chips(found[name]), bits), (users, name)
        normed = In(same_on_all_chips(first["normed"])[None, None], memory=memory)
        (apart,) = run_ops(worker, [Call("tt_kernels.decode_product.op:decode_product", normed, weight, result)])
        assert torch.equal(same_on_all_chips(apart["out"]), same_on_all_chips(first["product"]))
        wanted = same_on_all_chips(first["normed"]).double() @ same_on_all_chips(first["weight"]).double()
        assert errors_of(same_on_all_chips(first["product"]), wanted)["error"] < 0.006


@pytest.mark.sim
@pytest.mark.parametrize("users", [1, 3])
def test_values_that_cancel_and_those_that_are_no_numbers(sim_mesh, users):
    """Parts of any size whose sum is small. Infinities and NaN reach all chips alike and no other number of the sum.
    The norm of a row with infinities is NaN there and else 0, of one with NaN all NaN; other rows' are as without."""
    generator, columns = torch.Generator().manual_seed(5), 64
    shape = (1, users, columns)
    scale = 2.0 ** torch.randint(-20, 20, shape, generator=generator)
    first = (scale * torch.randn(shape, generator=generator)).bfloat16()
    small = (2.0**-6 * scale * torch.randn(shape, generator=generator)).bfloat16()
    cancelling = torch.stack([first, small - first])
    infinite, _, _ = draw(users, 2, users, columns)
    infinite[0, 0, 0, 1], infinite[1, 0, 0, 40] = -float("inf"), float("inf")
    broken = infinite.clone()
    broken[0, 0, 0, 2] = float("nan")
    broken[0, 0, 0, 3], broken[1, 0, 0, 3] = float("inf"), -float("inf")
    op, norm = reduce_of(users, columns), torch.ones(columns).bfloat16()
    given = [cancelling, infinite, broken]
    whole, *others = run_ops(sim_mesh((1, 2), "2x2"), [call_of(op, parts, norm=norm) for parts in given])
    check(whole, cancelling, norm=norm)
    for parts, found in zip(given[1:], others, strict=True):
        total, normed = reference.all_reduce(list(parts[:, 0]), norm=norm)
        sums, norms = (same_on_all_chips(found[name]).double() for name in ("sum", "normed"))
        torch.testing.assert_close(sums, total, atol=1e-6, rtol=HALF_STEP, equal_nan=True)
        torch.testing.assert_close(norms, normed, atol=1e-6, rtol=1.01 * HALF_STEP, equal_nan=True)


@pytest.mark.sim
@pytest.mark.parametrize("replays", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_replays_of_a_trace(sim_mesh, replays):
    """Each with its own values, in both slots by turns."""
    op, drawn = reduce_of(1, 64), [draw(seed, 2, 1, 64) for seed in range(replays)]
    calls = [call_of(op, *each) for each in drawn]
    for each, found in zip(drawn, run_ops(sim_mesh((1, 2), "2x1", dispatch="fast"), calls, traced=True), strict=True):
        check(found, *each)


@pytest.mark.sim
@pytest.mark.parametrize("chips", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_longer_lines(sim_mesh, chips):
    """Those in the middle send both ways."""
    op, drawn = reduce_of(1, 64), [draw(seed, chips, 1, 64) for seed in range(2)]
    results = run_ops(sim_mesh((1, chips), "2x1"), [call_of(op, *each) for each in drawn], timeout=1500)
    for each, found in zip(drawn, results, strict=True):
        check(found, *each)


COLUMNS = 64
IMPATIENCE_S = 2e-5  # 20,000 cycles
SILENT, NO_PACKET = "sent no rows", "the fabric link took no packet"
GATE = "tt_kernels.compute_gate.op"


def parts_of(value: float) -> torch.Tensor:
    """Return parts of one user that chip r of two fills with value + r."""
    return torch.stack([torch.full((1, 1, COLUMNS), value + rank) for rank in (0, 1)]).bfloat16()


def same(op: Make, value: float, **options) -> Call:
    return call_of(op, parts_of(value), **options)


def sums(found: dict[str, Any]) -> list[float]:
    """Return what each chip holds, of which all columns are equal."""
    return [part.unique().item() for part in found["sum"].values()]


def message_of(found: dict[str, Any]) -> str | None:
    return found["errors"]["AllReduce"]


@pytest.mark.sim
def test_a_closed_gate_skips_it_on_all_chips(sim_mesh):
    """The next call meets its peer as if there had been none."""
    op, closed = reduce_of(1, COLUMNS), Make(f"{GATE}:skip_compute", priorities(0, None), users=1, shared_gate_axis=1)
    clear = Call(f"{GATE}:clear_compute_gate", device=True)
    calls = [clear, same(op, 1.0), same(op, 1.0, inside=closed), same(op, 5.0)]
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


OP = "tt_kernels.all_reduce.op:AllReduce"


@pytest.mark.mock_mesh
def test_what_is_refused_is_named(mock_mesh):
    zeros, op = torch.zeros(1, 1, 3, 128), Make(OP, 3, 128, device=True)

    def call(values=zeros, dtype="bfloat16", **options) -> Call:
        return Call(op, In(values, dtype), **options)

    calls = {
        "users must be 1 to 32, not 33": Call(OP, 33, 128, device=True),
        "users must be 1 to 32, not 0": Call(OP, 0, 128, device=True),
        "columns must be a positive multiple of 32, not 100": Call(OP, 1, 100, device=True),
        "TP groups along axis 0 need a mesh with 2 to 8 chips there; its shape is (1, 2)": Call(
            OP, 1, 128, tp_axis=0, device=True
        ),
        "a timeout is a positive, finite number of seconds, not -1": Call(OP, 1, 128, timeout_s=-1, device=True),
        "partial must be (1, 1, 3, 128), it is BFLOAT16 TILE (1, 1, 2, 128)": call(zeros[:, :, :2]),
        "partial must be bfloat16 TILE on the device, it is FLOAT32": call(dtype="float32"),
        "residual must be (1, 1, 3, 128), it is BFLOAT16 TILE (1, 1, 3, 64)": call(residual=In(zeros[..., :64])),
        "norm must be (1, 1, 1, 128), it is BFLOAT16 TILE (1, 1, 3, 128)": call(norm=In(zeros)),
        "epsilon is a positive, finite number, not 0": call(norm=In(zeros[:, :, :1]), epsilon=0),
        "partial must be a ttnn.Tensor, it is a int": Call(op, 3),
        "multiply needs norm": call(multiply=(In(zeros), shards(4, 32))),
    }
    check_refused(mock_mesh((1, 2)), calls)


@pytest.mark.mock_mesh
@pytest.mark.parametrize("users", [1, 32])
def test_it_builds_at_llama_shapes_on_eight_chips_and_only_where_the_gate_is_shared(mock_mesh, users):
    mesh = mock_mesh((1, 8), overlays=sgdc.overlays())
    op, zeros = Make(OP, users, 4096, device=True), In(torch.zeros(1, 1, users, 4096))
    norm = In(torch.zeros(1, 1, 1, 4096))
    calls = [Call(op, zeros, residual=zeros, norm=norm)]
    if users == 1:  # qkv and the gate of a chip of eight
        row, multiplying = In(zeros.values, memory=shards(8, 512)), Make(OP, users, 4096, multiplies=True, device=True)
        for outputs, of_bank, dtype in ((768, 64, "bfloat8_b"), (3584, 320, "bfloat4_b")):
            weight = In(torch.zeros(1, 1, 4096, outputs), dtype, memory=banks(4096, of_bank))
            multiply = (weight, shards(outputs // 64, 64))
            calls.append(Call(multiplying, row, residual=row, norm=norm, multiply=multiply))
    for found in run_ops(mesh, calls):
        assert [tuple(part.shape) for part in found["normed"].values()] == [(1, 1, users, 4096)] * 8
    gate = Make(f"{GATE}:skip_compute", priorities(2, None), users=1)
    message = refusals(mesh, {"": Call(op, zeros, inside=gate)})[""]
    assert message.startswith("GatedRegionError: all_reduce (cluster_axis=1) is a cross-chip op")
