# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Chips that share the heads of their users decide together: on simulated meshes, over the fabric."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tt_kernels.speculative_flash_decode.flash_decode_mesh import GRID, MeshCall, mesh_body
from tests.tt_kernels.speculative_flash_decode.flash_decode_tp import (
    CASE,
    IMPATIENCE_S,
    PATIENCE_S,
    PLACES,
    POSITIONS,
    check_both_groups,
    check_sender_group,
    inputs,
    priorities_told,
    thresholds_between,
)
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, YIELDED

pytestmark = pytest.mark.sim

LIMIT_S = 900


def test_a_tp_group_decides_by_all_heads(sim_mesh):
    """Without a peer: acceptance close to the threshold, on either side; then a group that accepts nothing."""
    low, high = thresholds_between(CASE, POSITIONS)
    calls = [MeshCall(POSITIONS, threshold) for threshold in (low, high, 0.0, 100.0)]
    results = sim_mesh((1, 2), GRID).run(mesh_body, CASE, *inputs(), calls, PATIENCE_S, timeout=LIMIT_S)
    decided = [check_sender_group(found, 0, CASE, call) for call, found in zip(calls, results, strict=True)]
    assert all(found.messages == (None, None) for found in results)
    assert [outcome[0] for outcome in decided] == [HOLDS_EXACT, YIELDED, HOLDS_EXACT, YIELDED]
    assert decided[3] == [YIELDED, YIELDED, HOLDS_EXACT_UNVERIFIED]


def test_two_groups_of_two_chips(sim_mesh):
    """Sender and receiver are TP groups; decisions equal the reference over all heads, whichever group sends."""
    low, high = thresholds_between(CASE, POSITIONS)
    calls = [
        MeshCall(POSITIONS, high, priorities_told(HOLDS_EXACT, YIELDED)),
        MeshCall(POSITIONS, low, priorities_told(YIELDED, HOLDS_GUESS)),
        MeshCall(POSITIONS, high, priorities_told(HOLDS_GUESS, HOLDS_EXACT)),
    ]
    results = sim_mesh((2, 2), GRID).run(mesh_body, CASE, *inputs(), calls, PATIENCE_S, timeout=LIMIT_S)
    decided = [
        check_both_groups(found, call, sender) for call, found, sender in zip(calls, results, (0, 1, 1), strict=True)
    ]
    assert [outcome[0] for outcome in decided] == [YIELDED, HOLDS_EXACT, YIELDED]


def test_faults_in_groups_and_pairs_end_and_are_told(sim_mesh):
    """Chips of a TP group that disagree on who sends; a chip whose guess found no receiver, so that its group accepts
    nothing; and all is well after a reset."""
    told, other = priorities_told(HOLDS_EXACT, YIELDED), priorities_told(YIELDED, HOLDS_EXACT)
    split = {place: (told if place[1] == 0 else other)[place] for place in PLACES}
    refused = told | {(1, 0): other[1, 0]}
    calls = [
        MeshCall(POSITIONS, 100.0, split),
        MeshCall(POSITIONS, 100.0, refused, reset=True),
        MeshCall(POSITIONS, 100.0, told, reset=True),
    ]
    results = sim_mesh((2, 2), GRID).run(mesh_body, CASE, *inputs(), calls, IMPATIENCE_S, timeout=LIMIT_S)
    held, hit = [HOLDS_EXACT, HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED], [HOLDS_GUESS] * CASE.users

    disagree, no_receiver, well = results
    assert disagree.messages == (
        None,
        "chip (0, 0) gave up in call 1: TP rank 1 sent no numbers; "
        "chip (1, 1) gave up in call 1: TP rank 0 sent no numbers",
    )
    assert disagree.priorities == {(0, 0): held, (0, 1): hit, (1, 0): hit, (1, 1): held}

    pairs, rows = no_receiver.messages
    reason = "both ranks took the same role: they disagree on the gathered priorities"
    assert pairs == f"chip (0, 0) gave up in call 1: {reason}; chip (1, 0) gave up in call 1: {reason}"
    assert rows == "chip (1, 0) gave up in call 1: TP rank 1 sent no numbers"
    assert [no_receiver.priorities[0, column] for column in (0, 1)] == [held, held], "the group decides alike"
    assert no_receiver.priorities[1, 1] == hit

    check_both_groups(well, calls[2], 0)


def test_a_neighbour_that_cannot_be_heard_is_given_up_on(sim_mesh):
    """The cable between the chips of a TP group is out: both end in time, accept nothing and say so; and take no part
    in the next call, though the cable is in again."""
    worker = sim_mesh((1, 2), GRID)
    try:
        call = MeshCall(POSITIONS, 100.0)
        (before,) = worker.run(mesh_body, CASE, *inputs(), [call], PATIENCE_S, timeout=LIMIT_S)
        assert before.messages == (None, None)
        worker.links.cut()
        results = worker.run(mesh_body, CASE, *inputs(), [call, call], IMPATIENCE_S, timeout=LIMIT_S)
    finally:
        worker.kill()
    for found in results:
        assert "chip (0, 0) gave up in call 1" in found.messages[1]
        assert "chip (0, 1) gave up in call 1" in found.messages[1]
        for column in (0, 1):
            assert found.priorities[0, column] == [HOLDS_EXACT, HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED]


@pytest.mark.slow
def test_four_chips_speak_over_several_hops(sim_mesh):
    case = replace(CASE, heads=4, kv_heads=4)
    low, high = thresholds_between(case, POSITIONS)
    calls = [MeshCall(POSITIONS, threshold) for threshold in (low, high)]
    results = sim_mesh((1, 4), GRID).run(mesh_body, case, *inputs(case), calls, PATIENCE_S, timeout=LIMIT_S)
    for call, found in zip(calls, results, strict=True):
        assert found.messages == (None, None)
        check_sender_group(found, 0, case, call, columns=4)
