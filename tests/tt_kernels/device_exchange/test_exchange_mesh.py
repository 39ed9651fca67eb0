# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Exchanges over the fabric between two chips: forty with drawn priorities, and those
whose link fails or whose peer is silent or late, after which the mesh opens again."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.support.run_op import Call, In, Make, priorities, run_ops
from tt_kernels.common import reference as common_reference
from tt_kernels.device_exchange import reference

pytestmark = pytest.mark.sim

EXCHANGES, USERS = 40, 3


def exchange_of(users: int, timeout_s: float = 2.0) -> Make:
    pairs = Make("tt_kernels.common.peer:ChipPairs", 1, device=True)
    return Make("tt_kernels.device_exchange.op:DeviceExchange", pairs, users=users, timeout_s=timeout_s)


def a_chip_each(parts: Sequence[torch.Tensor], dtype: str = "bfloat16", read: str | None = None) -> In:
    """Return a tensor of which each chip has a part [1, ...]."""
    return In(torch.cat(list(parts)), dtype, split=(None, 0), read=read)


def rows_each(rows: Sequence[Sequence[int]]) -> In:
    """Return each chip's priorities."""
    return a_chip_each([priorities(row).values for row in rows], "uint32")


def both(found: dict[tuple[int, int], torch.Tensor]) -> list[torch.Tensor]:
    """Return what both chips have, by rank."""
    return [found[place] for place in sorted(found)]


def draw_rows(draw: random.Random) -> list[list[int]]:
    """Draw any priorities, but for those where nobody holds the result: that is an error, after which a pair is
    still."""
    while True:
        top = [draw.randrange(4) for _ in range(2)]
        rows = [[draw.randint(0, top[rank]) for _ in range(USERS)] for rank in range(2)]
        try:
            common_reference.sender(rows, USERS)
        except common_reference.NobodyError:
            continue
        return rows


@pytest.mark.parametrize("rows_in_use", [32, 3], ids=["tiles", "packed rows"])
def test_exchanges_with_random_roles(sim_mesh, rows_in_use):
    """Every exchange has values of its own, so that one that was left out, late or mixed with another is seen."""
    draw, exchange = random.Random(17), exchange_of(USERS)
    rows = [draw_rows(draw) for _ in range(EXCHANGES)]
    values = torch.randn(EXCHANGES, 2, 1, 1, rows_in_use, 32, generator=torch.Generator().manual_seed(17)).bfloat16()
    calls = [
        Call(exchange, a_chip_each(each, read="held"), rows_each(row)) for each, row in zip(values, rows, strict=True)
    ]
    results = run_ops(sim_mesh((1, 2)), calls)
    for number, (each, found) in enumerate(zip(rows, results, strict=True)):
        right, right_gathered = reference.device_exchange(list(values[number]), each, USERS)
        for rank in (0, 1):
            where = f"exchange {number}, rank {rank}, priorities {each}"
            assert torch.equal(both(found["held"])[rank], right[rank]), where
            assert torch.equal(both(found["out"])[rank][0, 0].int(), right_gathered), where
    senders = [common_reference.sender(each, USERS) for each in rows]
    states = results[-1]["states"]["ChipPairs"]
    assert results[-1]["errors"]["ChipPairs"] is None and len({found["entries"] for found in results}) == 1
    assert [state.sent for state in states] == [senders.count(0), senders.count(1)]
    assert [state.calls for state in states] == [EXCHANGES] * 2
    tops = [tuple(max(row) for row in each) for each in rows]
    assert [state.ties for state in states] == [sum(a == b for a, b in tops)] * 2 and states[0].ties > 1


# ------------------------------------------------------------------------------ faults

VALUES = (1.0, 2.0)
PATIENCE_S = 2e-5  # 20,000 cycles
ARRIVED, LATE_DATA, NO_PACKET = "did not arrive", "its data did not", "the fabric link took no packet"
SENT, KEPT = [[VALUES[0]], [VALUES[0]]], [[VALUES[0]], [VALUES[1]]]


def residuals() -> list[In]:
    """Return residuals of VALUES, one a chip: of many users, whose tiles travel, and of one, whose rows are packed."""
    return [
        a_chip_each([torch.full((1, 1, rows, 64), value) for value in VALUES], read=f"{rows} rows") for rows in (32, 1)
    ]


def outcome(found: dict[str, Any]) -> tuple[str | None, list[list[float]]]:
    """Return the message of check(), and the values that each chip holds in both residuals."""
    parts = zip(*(both(found[f"{rows} rows"]) for rows in (32, 1)), strict=True)
    return found["errors"]["ChipPairs"], [
        torch.cat([each.flatten() for each in part]).unique().tolist() for part in parts
    ]


def run_exchanges(worker, steps, patience_s: float = PATIENCE_S) -> list[tuple[str | None, list[list[float]]]]:
    """Run exchanges that chip 0 sends, each after calls of Links, or "alone": only chip 0 takes part."""
    exchange, calls = exchange_of(1, patience_s), []
    for step in steps:
        tiles, packed = residuals()
        row = rows_each([[2], [0]])
        if step == "alone":
            calls.append(Call(f"{__name__}:alone", exchange, [tiles, packed], row, (0, 0)))
        else:
            calls.append(Call(exchange, tiles, row, packed, links=step or ()))
    return list(map(outcome, run_ops(worker, calls)))


def alone(exchange, tensors, row, chip) -> None:
    """Launch a call in which only that chip takes part, in the worker."""
    import ttnn

    exchange.pairs.coordinates = lambda: [chip]
    program = exchange.mesh_program(tensors, row)
    del exchange.pairs.coordinates
    ttnn.generic_op([*tensors, row, exchange.gathered], program)


def new_pairs(mesh, earlier, tensors, row) -> None:
    """Make pairs and use them at once, while chip 1 still waits in a call of others; in the worker."""
    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.device_exchange.op import DeviceExchange

    alone(earlier, tensors, row, (0, 1))
    exchange = DeviceExchange(ChipPairs(mesh, 1), users=1, timeout_s=50 * PATIENCE_S)
    exchange(tensors[0], row, tensors[1])
    exchange.pairs.check()


def check_whole(worker) -> None:
    """Assert that the mesh opens again and carries an exchange."""
    worker.links.mend()
    worker.reopen()
    assert run_exchanges(worker, [None]) == [(None, SENT)]


def test_delays_and_losses_change_when_not_what(sim_mesh):
    lose = ("lose", {"probability": 0.3, "seed": 5})
    steps = [None, *([step] for step in (("delay", {"latency": 3000}), ("delay", {"latency": 1}), ("mend", {}), lose))]
    steps.append([("mend", {})])
    assert run_exchanges(sim_mesh((1, 2)), steps, 1e-3) == [(None, SENT)] * len(steps)


def test_a_cut_is_reported_by_both_members_and_the_mesh_opens_again(sim_mesh):
    worker = sim_mesh((1, 2))
    before, (message, held) = run_exchanges(worker, [None, [("cut", {})]])
    assert before == (None, SENT)
    assert message.count("gave up in call 2") == 2 and ARRIVED in message and held == KEPT
    assert all(state.lost for state in worker.links.states() if state.link == 1)
    check_whole(worker)


@pytest.mark.parametrize("after", [600, 1200, 1800, 2600])
def test_a_cut_during_an_exchange_ends_it(sim_mesh, after):
    """Whatever had got through by then: it ends, and a rank that did not get the data says so."""
    worker = sim_mesh((1, 2))
    ((message, held),) = run_exchanges(worker, [[("cut", {"in_cycles": after})]])
    if message is None:
        assert held == SENT
    else:
        assert any(reason in message for reason in (ARRIVED, LATE_DATA, NO_PACKET))
        assert held[0] == [VALUES[0]] and "chip (0, 1)" in message
    check_whole(worker)


def test_a_silent_peer_and_one_later_than_the_patience_are_reported(sim_mesh):
    """Chip 1 takes no part; then its packets take 50,000 cycles, and a rank waits for 20,000."""
    worker = sim_mesh((1, 2))
    ((message, held),) = run_exchanges(worker, ["alone"])
    assert message == "chip (0, 0) gave up in call 1: the peer did not arrive" and held == KEPT
    ((message, held),) = run_exchanges(worker, [[("delay", {"latency": 50_000})]])
    assert message.count("gave up in call 1") == 2 and ARRIVED in message and held == KEPT
    check_whole(worker)


def test_pairs_may_be_used_as_soon_as_they_are_made(sim_mesh):
    """A busy chip has its new state zeroed late; what its peer had sent by then must not be wiped out."""
    given = exchange_of(1, PATIENCE_S), residuals(), rows_each([[2], [0]])
    (found,) = run_ops(sim_mesh((1, 2), dispatch="fast"), [Call(f"{__name__}:new_pairs", *given, device=True)])
    assert outcome(found)[1] == SENT
