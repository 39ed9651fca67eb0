# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The exchange between chips whose link fails, or whose peer is silent or late; afterwards the mesh opens again."""

from __future__ import annotations

import os

import pytest

from runtime_patches.simulated_n150.testing.tensors import on_chips

VALUES = (1.0, 2.0)
PATIENCE_S = 2e-5  # 20,000 cycles
ARRIVED, LATE_DATA, NO_PACKET = "did not arrive", "its data did not", "the fabric link took no packet"


def a_chip_each(mesh, parts, dtype, layout):
    """parts: [1, ...] each, a part a chip."""
    import torch
    import ttnn

    mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
    return on_chips(mesh, torch.cat(parts), dtype, layout, mapper)


def residuals_of(mesh):
    """Residuals of VALUES, one a chip: of many users, whose tiles travel, and of one, whose rows are packed."""
    import torch
    import ttnn

    tiles = [[torch.full((1, 1, rows, 64), value) for value in VALUES] for rows in (32, 1)]
    return [a_chip_each(mesh, parts, ttnn.bfloat16, ttnn.TILE_LAYOUT) for parts in tiles]


def held_by_chips(residuals) -> list[list[float]]:
    """The values in both residuals, of each chip."""
    import torch
    import ttnn

    chips = zip(*(ttnn.get_device_tensors(residual) for residual in residuals), strict=True)
    return [torch.cat([ttnn.to_torch(part).flatten() for part in parts]).unique().tolist() for parts in chips]


def first_sends(mesh):
    """Priorities by which chip 0 sends."""
    import ttnn

    from tt_kernels.common.priority import priority_row

    return a_chip_each(mesh, [priority_row([2]), priority_row([0])], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)


def exchange_body(mesh, steps, patience_s=PATIENCE_S):
    """Exchanges, each after one of `steps`: None; (method of Links, arguments); or "alone", only chip 0 takes part.

    Returns of each the message of check() or None, and the values both chips hold; a failure is forgotten after it.
    """
    import ttnn

    from runtime_patches.simulated_n150.links import Links
    from tt_kernels.common.peer import ChipPairs, PeerError
    from tt_kernels.device_exchange.op import DeviceExchange

    links = Links(os.getpid())
    exchange = DeviceExchange(ChipPairs(mesh, 1), users=1, timeout_s=patience_s)
    priority = first_sends(mesh)
    found = []
    for step in steps:
        residual, row = residuals_of(mesh)
        ttnn.synchronize_device(mesh)
        if step == "alone":
            alone(exchange, [residual, row], priority, (0, 0))
        else:
            if step is not None:
                getattr(links, step[0])(**step[1])
            exchange(residual, priority, row)
        try:
            exchange.check()
            message = None
        except PeerError as error:
            message = str(error)
            exchange.pairs.reset()
        found.append((message, held_by_chips([residual, row])))
    return found


def alone(exchange, residuals, priority, chip):
    """Launch a call in which only that chip takes part."""
    import ttnn

    exchange.pairs.coordinates = lambda: [chip]
    program = exchange.mesh_program(residuals, priority)
    del exchange.pairs.coordinates
    ttnn.generic_op([*residuals, priority, exchange.gathered], program)


def new_pairs_body(mesh, patience_s=PATIENCE_S):
    """Pairs made, and used at once, while chip 1 still waits in a call of others: what exchange_body returns."""
    import ttnn

    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.device_exchange.op import DeviceExchange

    residual, row = residuals_of(mesh)
    priority = first_sends(mesh)
    earlier = DeviceExchange(ChipPairs(mesh, 1), users=1, timeout_s=patience_s)
    ttnn.synchronize_device(mesh)
    alone(earlier, [residual, row], priority, (0, 1))
    exchange = DeviceExchange(ChipPairs(mesh, 1), users=1, timeout_s=50 * patience_s)
    exchange(residual, priority, row)
    exchange.check()
    return held_by_chips([residual, row])


SENT = [[VALUES[0]], [VALUES[0]]]
KEPT = [[VALUES[0]], [VALUES[1]]]


def check_whole(worker):
    """The mesh opens again and carries an exchange."""
    worker.links.mend()
    worker.reopen()
    assert worker.run(exchange_body, [None]) == [(None, SENT)]


@pytest.mark.sim
def test_delays_and_losses_change_when_not_what(sim_mesh):
    worker = sim_mesh((1, 2))
    steps = [
        None,
        ("delay", {"latency": 3000}),
        ("delay", {"latency": 1}),
        ("mend", {}),
        ("lose", {"probability": 0.3, "seed": 5}),
        ("mend", {}),
    ]
    assert worker.run(exchange_body, steps, patience_s=1e-3) == [(None, SENT)] * len(steps)


@pytest.mark.sim
def test_a_cut_is_reported_by_both_members_and_the_mesh_opens_again(sim_mesh):
    worker = sim_mesh((1, 2))
    (before, cut) = worker.run(exchange_body, [None, ("cut", {})])
    assert before == (None, SENT)
    message, held = cut
    assert message.count("gave up in call 2") == 2 and ARRIVED in message and held == KEPT
    assert all(state.lost for state in worker.links.states() if state.link == 1)
    check_whole(worker)


@pytest.mark.sim
@pytest.mark.parametrize("after", [600, 1200, 1800, 2600])
def test_a_cut_during_an_exchange_ends_it(sim_mesh, after):
    """Whatever had got through by then: it ends, and a rank that did not get the data says so."""
    worker = sim_mesh((1, 2))
    ((message, held),) = worker.run(exchange_body, [("cut", {"in_cycles": after})])
    if message is None:
        assert held == SENT
    else:
        assert any(reason in message for reason in (ARRIVED, LATE_DATA, NO_PACKET))
        assert held[0] == [VALUES[0]] and "chip (0, 1)" in message
    check_whole(worker)


@pytest.mark.sim
def test_a_silent_peer_is_reported(sim_mesh):
    """Chip 1 takes no part."""
    worker = sim_mesh((1, 2))
    ((message, held),) = worker.run(exchange_body, ["alone"])
    assert message == "chip (0, 0) gave up in call 1: the peer did not arrive" and held == KEPT
    check_whole(worker)


@pytest.mark.sim
def test_a_peer_later_than_the_patience_is_reported(sim_mesh):
    """Its packets take 50,000 cycles, and a rank waits for 20,000."""
    worker = sim_mesh((1, 2))
    ((message, held),) = worker.run(exchange_body, [("delay", {"latency": 50_000})])
    assert message.count("gave up in call 1") == 2 and ARRIVED in message and held == KEPT
    check_whole(worker)


@pytest.mark.sim
def test_pairs_may_be_used_as_soon_as_they_are_made(sim_mesh):
    """A busy chip has its new state zeroed late; what its peer had sent by then must not be wiped out."""
    assert sim_mesh((1, 2), dispatch="fast").run(new_pairs_body) == SENT
