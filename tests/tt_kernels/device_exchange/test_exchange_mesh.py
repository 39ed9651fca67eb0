# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Exchanges over the fabric between two chips: a hundred with drawn priorities, and the body of the silicon test."""

from __future__ import annotations

import random

import pytest
import torch

from tests.support import sgdc_pair
from tt_kernels.common import reference as common_reference
from tt_kernels.device_exchange import reference

EXCHANGES, USERS = 100, 3


def exchanges_body(mesh, values, calls, users):
    """An exchange for each of `calls` (priorities of both chips), of `values` [calls, chips, 1, rows, 32].

    Returns of each what both chips hold and gathered, then by how many programs the cache grew, and the states.
    """
    import torch
    import ttnn

    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.priority import priority_row
    from tt_kernels.device_exchange.op import DeviceExchange

    def a_chip_each(parts, dtype, layout, **place):
        mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
        return ttnn.from_torch(parts, dtype=dtype, layout=layout, mesh_mapper=mapper, **place)

    def tiles(number, **place):
        return a_chip_each(values[number], ttnn.bfloat16, ttnn.TILE_LAYOUT, **place)

    def priorities(number, **place):
        rows = torch.cat([priority_row(row) for row in calls[number]])
        return a_chip_each(rows, ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, **place)

    exchange = DeviceExchange(ChipPairs(mesh, 1), users=users)
    residual, priority = tiles(0, device=mesh), priorities(0, device=mesh)
    before, found, entries = mesh.num_program_cache_entries(), [], set()
    for number in range(len(calls)):
        ttnn.copy_host_to_device_tensor(tiles(number), residual)
        ttnn.copy_host_to_device_tensor(priorities(number), priority)
        gathered = exchange(residual, priority)
        entries.add(mesh.num_program_cache_entries() - before)
        held = [ttnn.to_torch(part)[0] for part in ttnn.get_device_tensors(residual)]
        told = [ttnn.to_torch(part)[0, 0].to(torch.int32) for part in ttnn.get_device_tensors(gathered)]
        found.append((held, told))
    exchange.check()
    return found, entries, exchange.pairs.states()


def draw_rows(draw: random.Random) -> list[list[int]]:
    """Any priorities, but for those where nobody holds the result: that is an error, after which a pair is still."""
    while True:
        top = [draw.randrange(4) for _ in range(2)]
        rows = [[draw.randint(0, top[rank]) for _ in range(USERS)] for rank in range(2)]
        try:
            common_reference.sender(rows, USERS)
        except common_reference.NobodyError:
            continue
        return rows


@pytest.mark.sim
@pytest.mark.parametrize("rows_in_use", [32, 3], ids=["tiles", "packed rows"])
def test_a_hundred_exchanges_with_random_roles(sim_mesh, rows_in_use):
    """Every exchange has values of its own, so that one that was left out, late or mixed with another is seen."""
    draw, generator = random.Random(17), torch.Generator().manual_seed(17)
    calls = [draw_rows(draw) for _ in range(EXCHANGES)]
    values = torch.randn(EXCHANGES, 2, 1, rows_in_use, 32, generator=generator).bfloat16()
    found, entries, states = sim_mesh((1, 2)).run(exchanges_body, values, calls, USERS)
    for number, (rows, (held, gathered)) in enumerate(zip(calls, found, strict=True)):
        right, right_gathered = reference.device_exchange(list(values[number]), rows, USERS)
        for rank in (0, 1):
            where = f"exchange {number}, rank {rank}, priorities {rows}"
            assert torch.equal(held[rank], right[rank]), where
            assert torch.equal(gathered[rank], right_gathered), where
    senders = [common_reference.sender(rows, USERS) for rows in calls]
    assert [state.sent for state in states] == [senders.count(0), senders.count(1)]
    assert [state.calls for state in states] == [EXCHANGES] * 2 and len(entries) == 1
    # What was drawn: both roles often, changes of role, ties, and all priorities of a rank.
    tops = [tuple(max(row) for row in rows) for rows in calls]
    assert min(senders.count(0), senders.count(1)) > 25
    assert sum(one != two for one, two in zip(senders, senders[1:])) > 25
    assert [state.ties for state in states] == [sum(a == b for a, b in tops)] * 2 and states[0].ties > 5
    assert all({top[rank] for top in tops} == {0, 1, 2, 3} for rank in (0, 1))


@pytest.mark.sim
@pytest.mark.parametrize(("shape", "axis"), [((1, 2), 1), ((2, 1), 0)])
def test_exchange_and_gate(sim_mesh, shape, axis):
    """The body of the silicon test: after each layer both chips hold the sender's values."""
    layers = sgdc_pair.draw_layers(8)
    found, failure, sent = sim_mesh(shape).run(sgdc_pair.layers_body, layers, shape=(32, 64), pair_axis=axis)
    senders = [common_reference.sender(rows, sgdc_pair.USERS) for rows, _ in layers]
    assert failure is None
    for number, ((rows, values), sender, (held, gathered, summed)) in enumerate(
        zip(layers, senders, found, strict=True)
    ):
        value = float(values[sender])
        assert held == [[value], [value]] and gathered == [rows, rows], f"layer {number}"
        assert summed == [[0.0 if max(row) == 0 else 2 * value] for row in rows], f"layer {number}"
    assert sent == [senders.count(0), senders.count(1)] and min(sent) > 0
