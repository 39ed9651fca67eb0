# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The attention ops between simulated chips: either chip sends, the chips of a row decide together, cables fail."""

from dataclasses import replace

import pytest

from tests.tt_kernels.attention import Case, binary, chain, padded, star, wanted
from tests.tt_kernels.attention_mesh import (
    GRID,
    HIT,
    IMPATIENCE_S,
    PATIENCE_S,
    ROW,
    ROW_AT,
    TOKEN,
    MeshCall,
    check_both,
    check_senders,
    check_two_rows,
    held,
    row_parts,
    run_mesh,
    sent_by,
    thresholds_between,
)
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, YIELDED
from tt_kernels.token_guard.op import FAILED

pytestmark = pytest.mark.sim

# A head each on one worker; two workers beside the deciding core and the exchange core, whose 40 rows are two tiles.
ONE = Case(1, 2, 2, 64, 96, users=2, grid=(2, 2))
TREES = Case(20, 2, 1, 64, 192, users=2, grid=(2, 2), workers=2, key_chunk=64)
FORMS = [chain(20), padded(binary(15), 20)]
# The last user is bypassed.
AT = {1: [95, 40], 20: [150, 40]}
CASES = pytest.mark.parametrize("case", [ONE, TREES], ids=["1", "20"])
KEPT = [HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED]


@CASES
def test_either_chip_sends(sim_mesh, case):
    """Hits, a miss, bypassed and skipped users, in an order in which the sender changes."""
    parents = FORMS if case.trees else None
    at, last = AT[case.nodes], [-1, 95 if case.nodes == 1 else 150]
    calls = [
        MeshCall(at, HIT, sent_by(0, 2), parents),
        MeshCall(at, 0.0, sent_by(1, 2), parents),
        MeshCall(last, HIT, sent_by(1, 2), [star(20), chain(20)] if case.trees else None),
        MeshCall(at, HIT, sent_by(0, 2), parents),
    ]
    parts = case.random(7)
    results = run_mesh(sim_mesh((2, 1), GRID), (2, 1), case, parts, calls)
    decided = [
        check_both(case, found, parts, call, sender)
        for found, call, sender in zip(results, calls, (0, 1, 1, 0), strict=True)
    ]
    hit = [YIELDED, HOLDS_EXACT_UNVERIFIED]
    assert decided == [hit, KEPT, [YIELDED, YIELDED], hit]


@pytest.mark.parametrize("case, sender", [(ONE, 0), (ONE, 1), (TREES, 1)], ids=["1-0", "1-1", "20-1"])
def test_a_cut_cable_leaves_the_layer_to_the_sender(sim_mesh, case, sender):
    """In the call before which it is cut, and in the next one; no token leaves."""
    worker, parts = sim_mesh((2, 1), GRID), case.random(7)
    call = MeshCall(AT[case.nodes], HIT, sent_by(sender, 2), FORMS if case.trees else None)
    try:
        (whole,) = run_mesh(worker, (2, 1), case, parts, [call])
        check_both(case, whole, parts, call, sender)
        results = run_mesh(worker, (2, 1), case, parts, [call._replace(links=[("cut", {})]), call], IMPATIENCE_S)
    finally:
        worker.kill()
    for found in results:
        said = found["errors"]["ChipPairs"]
        assert all(f"chip ({row}, 0) gave up in call 1" in said for row in (0, 1))
        assert held(case, found) == {(sender, 0): KEPT, (1 - sender, 0): [YIELDED] * 2}
        assert all((tokens == FAILED).all() for tokens in found["tokens"].values())


def test_a_late_acknowledgement_costs_a_hit_and_not_agreement(sim_mesh):
    """Cables so slow that the guess arrives in time and its acknowledgement does not: the receiver goes on with the
    guess, but both rows say that the sender holds the layer, and check() tells."""
    worker, parts, call = sim_mesh((2, 1), GRID), ONE.random(7), MeshCall(AT[1], HIT, sent_by(0, 2))
    try:
        run_mesh(worker, (2, 1), ONE, parts, [call])  # compiles
        worker.links.delay(30_000)
        (found,) = run_mesh(worker, (2, 1), ONE, parts, [call], 45e-6)
    finally:
        worker.kill()
    assert found["errors"] == {"ChipPairs": "chip (0, 0) gave up in call 1: the peer did not acknowledge the data"}
    right = wanted(ONE, *parts, call.at, threshold=0.0)
    check_senders(ONE, found, 0, right)
    assert held(ONE, found) == {(0, 0): KEPT, (1, 0): [HOLDS_GUESS] * 2}
    tokens = {place: values.flatten().tolist() for place, values in found["tokens"].items()}
    assert tokens == {(0, 0): [FAILED] * 2, (1, 0): [TOKEN] * 2}


def test_a_tp_group_decides_by_all_heads(sim_mesh):
    """Without a peer: acceptance close to the threshold, on either side; then a group that accepts nothing, and all."""
    parts = row_parts()
    low, high = thresholds_between(ROW, parts, ROW_AT)
    calls = [MeshCall(ROW_AT, threshold) for threshold in (low, high, 0.0, HIT)]
    results = run_mesh(sim_mesh((1, 2), GRID), (1, 2), ROW, parts, calls)
    decided = []
    for call, found in zip(calls, results, strict=True):
        assert found["errors"] == {"TpGroup": None}
        right = wanted(ROW, *parts, ROW_AT, threshold=call.threshold)
        check_senders(ROW, found, 0, right, 2)
        decided.append(right.priorities)
    assert [outcome[0] for outcome in decided] == [HOLDS_EXACT, YIELDED, HOLDS_EXACT, YIELDED]
    assert decided[3] == [YIELDED, YIELDED, HOLDS_EXACT_UNVERIFIED]


def test_two_groups_of_two_chips(sim_mesh):
    check_two_rows(sim_mesh((2, 2), GRID))


@pytest.mark.slow
def test_two_groups_of_two_chips_decide_on_trees(sim_mesh):
    """A head on each chip of a TP group: decided by the norms over both."""
    case = replace(TREES, kv_heads=2)
    parts, at = case.random(7), [150, 97]
    right = wanted(case, *parts, at, FORMS)
    ratio = (right.distance_sq[0] / right.norm_sq[0]).sqrt().item()
    calls = [MeshCall(at, (1.03, 0.97)[rank] * ratio, sent_by(rank, 2), FORMS) for rank in (0, 1)]
    results = run_mesh(sim_mesh((2, 2), GRID), (2, 2), case, parts, calls)
    decided = [check_both(case, found, parts, calls[rank], rank, 2)[0] for rank, found in enumerate(results)]
    assert decided == [YIELDED, HOLDS_EXACT]


def test_faults_in_groups_and_pairs_end_and_are_told(sim_mesh):
    """Chips of a TP group that disagree on who sends; a chip whose guess found no receiver, so that its group accepts
    nothing; and all is well after a reset."""
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    told, other = [[HOLDS_EXACT] * 3, [YIELDED] * 3], [[YIELDED] * 3, [HOLDS_EXACT] * 3]
    parts = row_parts()
    calls = [
        MeshCall(ROW_AT, HIT, {place: told if place[1] == 0 else other for place in places}),
        MeshCall(ROW_AT, HIT, {place: other if place == (1, 0) else told for place in places}, reset=True),
        MeshCall(ROW_AT, HIT, told, reset=True),
    ]
    results = run_mesh(sim_mesh((2, 2), GRID), (2, 2), ROW, parts, calls, IMPATIENCE_S)
    kept, hit = [HOLDS_EXACT, HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED], [HOLDS_GUESS] * 3
    disagree, no_receiver, well = results
    assert disagree["errors"] == {
        "ChipPairs": None,
        "TpGroup": "chip (0, 0) gave up in call 1: TP rank 1 sent no numbers; "
        "chip (1, 1) gave up in call 1: TP rank 0 sent no numbers",
    }
    assert held(ROW, disagree) == {(0, 0): kept, (0, 1): hit, (1, 0): hit, (1, 1): kept}

    reason = "both ranks took the same role: they disagree on the gathered priorities"
    assert no_receiver["errors"] == {
        "ChipPairs": f"chip (0, 0) gave up in call 1: {reason}; chip (1, 0) gave up in call 1: {reason}",
        "TpGroup": "chip (1, 0) gave up in call 1: TP rank 1 sent no numbers",
    }
    found = held(ROW, no_receiver)
    assert [found[0, column] for column in (0, 1)] == [kept, kept], "the group decides alike"
    assert found[1, 1] == hit
    check_both(ROW, well, parts, calls[2], 0, 2)


def test_a_neighbour_that_cannot_be_heard_is_given_up_on(sim_mesh):
    """The cable between the chips of a TP group is out: both end in time, accept nothing and say so; and take no part
    in the next call, though the cable is in again."""
    worker, parts, call = sim_mesh((1, 2), GRID), row_parts(), MeshCall(ROW_AT, HIT)
    try:
        (before,) = run_mesh(worker, (1, 2), ROW, parts, [call])
        assert before["errors"] == {"TpGroup": None}
        worker.links.cut()
        results = run_mesh(worker, (1, 2), ROW, parts, [call, call], IMPATIENCE_S)
    finally:
        worker.kill()
    for found in results:
        assert all(f"chip (0, {column}) gave up in call 1" in found["errors"]["TpGroup"] for column in (0, 1))
        kept = [HOLDS_EXACT, HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED]
        assert held(ROW, found) == {(0, 0): kept, (0, 1): kept}


@pytest.mark.slow
def test_four_chips_speak_over_several_hops(sim_mesh):
    case = replace(ROW, heads=4, kv_heads=4)
    parts = row_parts(case)
    calls = [MeshCall(ROW_AT, threshold) for threshold in thresholds_between(case, parts, ROW_AT)]
    results = run_mesh(sim_mesh((1, 4), GRID), (1, 4), case, parts, calls, PATIENCE_S)
    for call, found in zip(calls, results, strict=True):
        assert found["errors"] == {"TpGroup": None}
        check_senders(case, found, 0, wanted(case, *parts, ROW_AT, threshold=call.threshold), 4)
