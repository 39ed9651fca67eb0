# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A hundred exchanges over the fabric, one after another, with priorities drawn for every user."""

from __future__ import annotations

import random

import pytest
import torch

from tests.runtime_patches.simulated_n150.mesh.mesh_programs import exchanges_body
from tt_kernels.common import reference as common_reference
from tt_kernels.device_exchange import reference

EXCHANGES, USERS = 100, 3


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
