# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The attention ops between simulated chips, of which two rows are the ranks of pairs and the chips of a row share the
heads: either chip sends, the chips of a row decide together, cables fail."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from loguru import logger

from tests.support.run_op import Call, In, Make, gathered, gathered_words, priorities, run_ops, words
from tests.tt_kernels.attention import (
    EXCHANGE,
    GRID,
    HIT,
    OUTPUT,
    Case,
    Wanted,
    binary,
    chain,
    check_near,
    padded,
    star,
    wanted,
)
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, YIELDED
from tt_kernels.token_guard.op import FAILED

TOKEN = 7
PATIENCE_S, IMPATIENCE_S = 2e-3, 3e-5


class MeshCall(NamedTuple):
    """told: the priorities of both ranks, as all chips know them or by chip; None for calls without a peer."""

    at: Sequence[int]
    threshold: float
    told: Sequence[Sequence[int]] | Mapping[tuple[int, int], Sequence[Sequence[int]]] | None = None
    parents: list[list[int]] | None = None
    reset: bool = False
    links: Sequence[tuple[str, dict]] = ()


def sent_by(rank: int, users: int) -> list[list[int]]:
    """Return priorities by which a rank sends."""
    return [[HOLDS_EXACT if row == rank else HOLDS_GUESS] * users for row in (0, 1)]


def run_mesh(
    worker, shape: tuple[int, int], case: Case, parts, calls: Sequence[MeshCall], patience_s: float = PATIENCE_S
) -> list[dict[str, Any]]:
    """Return each call's results by chip, with "tokens": what the token guard makes of TOKEN after it."""
    inputs = case.inputs(*parts, split=True)
    pairs = Make("tt_kernels.common.peer:ChipPairs", 0, EXCHANGE, device=True)
    group = Make("tt_kernels.common.tp_group:TpGroup", 1, OUTPUT, timeout_s=patience_s, device=True)
    states = [pairs] * (shape[0] == 2) + [group] * (shape[1] > 1)
    both = []
    for call in calls:
        options: dict[str, Any] = {"threshold": call.threshold, "priority": priorities(HOLDS_EXACT_UNVERIFIED)}
        if call.told is not None:
            if isinstance(call.told, Mapping):
                rows = torch.cat([gathered_words(call.told[row, column]) for row, column in sorted(call.told)])
                known = In(rows.view(*shape, 2, -1), "uint32", split=(0, 1))
            else:
                known = gathered(*call.told)
            options["peer"] = Make("tt_kernels.common.speculative_chips:Peer", pairs, known, patience_s)
        if shape[1] > 1:
            options["tp_group"] = group
        options |= {"reset": call.reset, "links": call.links}
        both.append(case.call("speculate", inputs, call.at, call.parents, **options))
        tokens = words([[TOKEN] * case.users], "uint32", read="tokens")
        both.append(Call("tt_kernels.token_guard.op:guard_tokens", tokens, states))
    results = run_ops(worker, both)
    return [found | {"tokens": after["tokens"]} for found, after in zip(results[::2], results[1::2], strict=True)]


def held(case: Case, found: dict[str, Any]) -> dict[tuple[int, int], list[int]]:
    """Return the users' priorities by chip."""
    return {place: row.flatten()[: case.users].tolist() for place, row in found["priority"].items()}


def check_senders(case: Case, found: dict[str, Any], row: int, right: Wanted, columns: int = 1) -> None:
    """Assert that every chip of a row has its heads' results, bit by bit the numbers of all heads, and the oracle's
    priorities."""
    heads = case.heads // columns
    numbers = []
    for column in range(columns):
        check_near(case, found, right, (row, column), slice(column * heads, (column + 1) * heads))
        numbers.append(torch.stack([found[name][row, column].flatten() for name in ("distance_sq", "norm_sq")]))
        torch.testing.assert_close(numbers[-1][1].double(), right.norm_sq, rtol=0.01, atol=0)
        assert held(case, found)[row, column] == right.priorities, f"chip {row, column}"
    assert all(torch.equal(each, numbers[0]) for each in numbers)


def check_both(case: Case, found: dict[str, Any], parts, call: MeshCall, sender: int, columns: int = 1) -> list[int]:
    """Assert a call that went well: the sender's results and decisions, and that the receiver has its guess bit by bit.
    Returns the sender's priorities."""
    assert not any(found["errors"].values())
    right = wanted(case, *parts, call.at, call.parents, threshold=call.threshold)
    check_senders(case, found, sender, right, columns)
    for column in range(columns):
        sent, received = (sender, column), (1 - sender, column)
        assert torch.equal(found["exact"][received], found["guess"][sent])
        assert not found["norm_sq"][received].any() and not found["distance_sq"][received].any()
        assert held(case, found)[received] == [YIELDED if position < 0 else HOLDS_GUESS for position in call.at]
    assert all((tokens == TOKEN).all() for tokens in found["tokens"].values())
    return right.priorities


# Chips of a row, on one worker each, with a head of their own.
ROW = Case(1, 2, 2, 64, 96, users=3, grid=(2, 2))
ROW_AT = [95, 70, 40]  # the last is bypassed


def row_parts(case: Case = ROW) -> list[torch.Tensor]:
    """Return values of the first chips' heads that lie close together, of the others' far apart: by its own head alone
    the first would accept what the second rejects."""
    q, k, v = case.random(7)
    v[:, : case.kv_heads // 2] = (2 + 0.1 * v[:, : case.kv_heads // 2]).bfloat16()
    return [q, k, v]


def thresholds_between(case: Case, parts, at: Sequence[int], parents=None) -> list[float]:
    """Return thresholds around the ratio of the first user over all heads, clear of the tolerance."""
    right = wanted(case, *parts, at, parents)
    ratio = float((right.distance_sq[0] / right.norm_sq[0]).sqrt())
    heads = [part[:, : case.nodes].flatten(1).norm(dim=1) for part in (right.guess - right.exact, right.exact)]
    first, *_, last = (heads[0] / heads[1]).tolist()
    logger.info(f"ratio {ratio}, of the first and the last head {first}, {last}")
    assert first < 0.8 * ratio and last > 1.2 * ratio, "the heads of a user must disagree"
    return [0.97 * ratio, 1.03 * ratio]


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


@pytest.mark.parametrize("case, sender", [(ONE, 1), (TREES, 0)], ids=["1", "20"])
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
    """Two rows of two chips decide as the oracle over all heads, whichever row sends."""
    parts = row_parts()
    low, high = thresholds_between(ROW, parts, ROW_AT)
    calls = [
        MeshCall(ROW_AT, high, [[HOLDS_EXACT] * 3, [YIELDED] * 3]),
        MeshCall(ROW_AT, low, [[YIELDED] * 3, [HOLDS_GUESS] * 3]),
        MeshCall(ROW_AT, high, [[HOLDS_GUESS] * 3, [HOLDS_EXACT] * 3]),
    ]
    results = run_mesh(sim_mesh((2, 2), GRID), (2, 2), ROW, parts, calls)
    decided = [
        check_both(ROW, found, parts, call, sender, 2)[0]
        for call, found, sender in zip(calls, results, (0, 1, 1), strict=True)
    ]
    assert decided == [YIELDED, HOLDS_EXACT, YIELDED]


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
