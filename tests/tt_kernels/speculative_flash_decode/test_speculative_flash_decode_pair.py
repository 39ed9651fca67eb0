# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sender and receiver as two groups of cores of one simulated chip, in one program, layer after layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from tests.tt_kernels.speculative_flash_decode.flash_decode_pair import (
    IMPATIENCE_S,
    PATIENCE_S,
    SHORT_S,
    Call,
    Found,
    calls_body,
    layers_body,
)
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import CHIP, Case
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, UNKNOWN, YIELDED
from tt_kernels.common.reference import sender as who_sends
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.reference import (
    Decoded,
    receiver_priorities,
    sender_priorities,
    speculative_flash_decode_reference,
)

pytestmark = pytest.mark.sim

LIMIT_S = 900
CASE = Case(2, 1, 64, 96, 32, users=2, workers=1)
TWO_WORKERS = replace(CASE, workers=2)
HIT, MISS = 100.0, 0.0  # thresholds
SHORT = GuessRange(CASE.chunk_size, CASE.chunk_size)  # as of short_tail


@dataclass(frozen=True)
class Expected:
    """What one layer does by the reference. before, after: priorities of both ranks; the sender and its results."""

    before: list[list[int]]
    after: list[list[int]]
    sender: int
    results: Decoded


def expected_layers(case, inputs, layers, initial) -> list[Expected]:
    q, k, v = inputs
    found, priorities = [], [list(row) for row in initial]
    for index, (threshold, positions) in enumerate(layers):
        sender = who_sends(priorities, case.users)
        results = speculative_flash_decode_reference(
            q, k.roll(index, 2), v.roll(index, 2), positions, chunk_size=case.chunk_size, guess_range=SHORT
        )
        after = [receiver_priorities(positions)] * 2
        after[sender] = sender_priorities(
            results.distance_sq, results.norm_sq, positions, chunk_size=case.chunk_size, threshold=threshold
        )
        found.append(Expected(priorities, after, sender, results))
        priorities = after
    return found


def check_layers(device, layers, initial, case=CASE, read_between=True) -> list[int]:
    """How many layers each rank sent."""
    inputs = case.random(5)
    expected = expected_layers(case, inputs, layers, initial)
    known = None if read_between else [layer.before for layer in expected]
    results, states, entries = device.run(layers_body, case, *inputs, layers, initial, known, timeout=LIMIT_S)
    for index, (layer, (outputs, after)) in enumerate(zip(expected, results, strict=True)):
        mine, theirs = outputs[layer.sender], outputs[1 - layer.sender]
        for name in ("exact", "guess"):
            reference = getattr(layer.results, name)
            torch.testing.assert_close(mine[name].double(), reference, atol=0.03, rtol=0.02)
            assert torch.equal(theirs[name], mine["guess"]), f"layer {index}: the receiver holds the guess, bit by bit"
        assert not theirs["distance_sq"].any() and not theirs["norm_sq"].any()
        if read_between or index == len(layers) - 1:
            assert after == layer.after, f"layer {index}, rank {layer.sender} sent"
    sent = [[layer.sender for layer in expected].count(rank) for rank in (0, 1)]
    assert states == [(len(layers), count) for count in sent]
    assert entries[-1] == entries[1], "all roles and outcomes run from one program"
    return sent


def test_roles_and_outcomes_alternate_over_layers(sim_device):
    """Accepted: the receiver is the next sender. Rejected: the sender stays. Bypassed and skipped users
    beside it."""
    full = [64, -1]
    layers = [
        (HIT, full),
        (HIT, full),
        (MISS, full),
        (HIT, [95, 65]),
        (MISS, [40, 90]),
        (HIT, [40, 95]),
        (HIT, full),
        (MISS, full),
        (HIT, [-1, 80]),
        (HIT, full),
    ]
    sent = check_layers(sim_device(CHIP), layers, [[HOLDS_EXACT] * 2, [YIELDED] * 2])
    assert min(sent) >= 3


def test_layers_with_two_workers_a_head_follow_each_other_without_a_look(sim_device):
    """All are launched before the host reads anything, or knows of any outcome."""
    layers = [(HIT, [64, -1]), (HIT, [95, 65]), (MISS, [40, 90]), (HIT, [33, 70])]
    sent = check_layers(sim_device(CHIP), layers, [[HOLDS_EXACT] * 2, [YIELDED] * 2], TWO_WORKERS, read_between=False)
    assert min(sent) >= 1


def test_on_a_tie_the_first_member_sends(sim_device):
    sent = check_layers(sim_device(CHIP), [(HIT, [70, -1]), (HIT, [70, -1])], [[HOLDS_EXACT, 0], [HOLDS_EXACT, 0]])
    assert sent == [1, 1]
    assert HOLDS_GUESS > YIELDED and HOLDS_EXACT_UNVERIFIED > HOLDS_EXACT


def run_calls(device, *calls: Call) -> list[Found]:
    """What became of each call. Whatever it was, the ranks agree on who holds the layer, or check() told."""
    results = device.run(calls_body, CASE, *CASE.random(6), list(calls), timeout=LIMIT_S)
    for call, found in zip(calls, results, strict=True):
        assert found.message or agree(found.priorities), (call, found.priorities)
    return results


def agree(priorities: list[list[int]]) -> bool:
    """Whether one rank's row outranks the other's, as after a call that went well."""
    highest, other = sorted((max(row) for row in priorities), reverse=True)
    return (highest >= HOLDS_EXACT and other <= HOLDS_GUESS) or (highest, other) == (HOLDS_GUESS, YIELDED)


def check_own_results(found: Found, rank: int, positions: list[int]) -> None:
    """The rank has its own exact result and guess, whatever its peer did."""
    reference = speculative_flash_decode_reference(
        *CASE.random(6), positions, chunk_size=CASE.chunk_size, guess_range=SHORT
    )
    for name in ("exact", "guess"):
        expected = getattr(reference, name)
        torch.testing.assert_close(
            found.outputs[rank][name].double(), expected, atol=0.03, rtol=0.02, msg=f"{rank} {name}"
        )


# With HIT every guess would be accepted. Rows start at HOLDS_EXACT_UNVERIFIED, which no rank writes here.
BOTH = [64, -1]
ROWS = {0: [[HOLDS_EXACT] * 2, [YIELDED] * 2], 1: [[YIELDED] * 2, [HOLDS_EXACT] * 2]}  # by who sends
SENDS, RECEIVES = 1, 2  # peer::Role
GAVE_UP = "rank {} (core (3, {})) gave up in call 1: {}"
SAME_ROLE = "both ranks took the same role: they disagree on the gathered priorities"


def test_two_senders_leave_each_other_alone(sim_device):
    positions = (BOTH, BOTH)
    (found,) = run_calls(sim_device(CHIP), Call(positions, (ROWS[0], ROWS[1]), HOLDS_EXACT_UNVERIFIED, HIT))
    assert found.message == "; ".join(GAVE_UP.format(rank, rank, SAME_ROLE) for rank in (0, 1))
    for rank in (0, 1):
        check_own_results(found, rank, positions[rank])
        held = [HOLDS_EXACT if position >= 0 else YIELDED for position in positions[rank]]
        assert found.priorities[rank] == held, "a guess nobody took is not accepted"


def test_members_that_skip_different_users_are_told(sim_device):
    """They agree on who sends, which only the gathered rows decide, but the guess would be of other users."""
    positions = ([70, -1], [-1, 70])
    (found,) = run_calls(sim_device(CHIP), Call(positions, (ROWS[0], ROWS[0]), HOLDS_EXACT_UNVERIFIED, HIT))
    reason = "the ranks skip different users"
    assert found.message == "; ".join(GAVE_UP.format(rank, rank, reason) for rank in (0, 1))
    check_own_results(found, 0, positions[0])
    assert found.priorities == [[HOLDS_EXACT, YIELDED], [YIELDED] * 2]


def test_two_receivers_end_at_once(sim_device):
    (found,) = run_calls(sim_device(CHIP), Call((BOTH, BOTH), (ROWS[1], ROWS[0]), HOLDS_EXACT_UNVERIFIED, HIT))
    assert found.message == "; ".join(GAVE_UP.format(rank, rank, SAME_ROLE) for rank in (0, 1))
    assert found.priorities == [[YIELDED] * 2] * 2, "a receiver without a guess holds nothing"


@pytest.mark.parametrize("rank, sends", [(0, True), (1, False)], ids=["sender", "receiver"])
def test_a_silent_peer_ends_in_the_bounded_error(sim_device, rank, sends):
    """Then a call that gives up at once, as the state says that there is no peer; then both after a reset."""
    gathered = ROWS[rank if sends else 1 - rank]
    both = Call((BOTH, BOTH), (gathered, gathered), HOLDS_EXACT_UNVERIFIED, HIT, reset=True)
    alone = replace(both, running=(rank,), patience_s=IMPATIENCE_S, reset=False)
    first, again, after = run_calls(sim_device(CHIP), alone, alone, both)
    for found in (first, again):
        assert found.message == GAVE_UP.format(rank, rank, "the peer did not arrive")
        assert found.calls == [int(rank == 0), int(rank == 1)]
        if sends:  # its own results do not depend on its peer; it holds the layer
            check_own_results(found, rank, BOTH)
            assert found.priorities[rank] == [HOLDS_EXACT, YIELDED]
        else:
            assert found.priorities[rank] == [YIELDED] * 2
    assert after.message is None
    assert after.priorities == [[YIELDED, YIELDED], [HOLDS_GUESS, YIELDED]]
    assert torch.equal(after.outputs[1]["exact"], after.outputs[0]["guess"])


@pytest.mark.parametrize(
    "sends, heard, reason",
    [
        (False, (1, SENDS, 1), "the peer arrived but its data did not"),
        (False, (3, SENDS, 1), "the peer is in another call"),
        (True, (3, RECEIVES, 1), "the peer is in another call"),
        (True, (1, RECEIVES, 1), "the peer did not acknowledge the data"),
    ],
    ids=["no data", "another call, received", "another call, sent", "no acknowledgement"],
)
def test_a_peer_that_stops_half_way_or_is_out_of_step_is_told_apart(sim_device, sends, heard, reason):
    gathered = ROWS[0 if sends else 1]
    (found,) = run_calls(
        sim_device(CHIP),
        Call((BOTH, BOTH), (gathered, gathered), HOLDS_EXACT_UNVERIFIED, HIT, (0,), IMPATIENCE_S, heard),
    )
    assert found.message == GAVE_UP.format(0, 0, reason)
    assert found.priorities[0] == ([HOLDS_EXACT, YIELDED] if sends else [YIELDED] * 2)


def test_a_receiver_out_of_patience_leaves_the_layer_to_its_sender(sim_device):
    """The sender has written and confirmed its guess to a receiver that had given up on it: no acknowledgement, no
    hit. Both rows say that the sender holds the layer."""
    patience = (PATIENCE_S, SHORT_S)
    (found,) = run_calls(
        sim_device(CHIP), Call((BOTH, BOTH), (ROWS[0], ROWS[0]), HOLDS_EXACT_UNVERIFIED, HIT, patience_s=patience)
    )
    assert found.message == "; ".join(
        GAVE_UP.format(rank, rank, reason)
        for rank, reason in enumerate(
            ("the peer did not acknowledge the data", "the peer arrived but its data did not")
        )
    )
    check_own_results(found, 0, BOTH)
    assert found.priorities == [[HOLDS_EXACT, YIELDED], [YIELDED, YIELDED]] and agree(found.priorities)


@pytest.mark.parametrize("own, held", [(HOLDS_EXACT, [HOLDS_EXACT, YIELDED]), (YIELDED, [YIELDED] * 2)])
def test_a_member_whose_exchange_failed_goes_on_alone_or_holds_nothing(sim_device, own, held):
    """The peer, which knows nothing of that, gives up on it."""
    unknown = [[own] * 2, [UNKNOWN] * 2]
    (found,) = run_calls(
        sim_device(CHIP), Call((BOTH, BOTH), (unknown, ROWS[1]), HOLDS_EXACT_UNVERIFIED, HIT, patience_s=IMPATIENCE_S)
    )
    assert found.message == "; ".join(
        f"rank {rank} (core (3, {rank})) gave up in call {call}: {reason}"
        for rank, call, reason in (
            (0, 0, "the exchange before this call failed on this rank"),
            (1, 1, "the peer did not arrive"),
        )
    )
    assert found.priorities[0] == held
    if own == HOLDS_EXACT:
        check_own_results(found, 0, BOTH)
    else:
        check_own_results(found, 1, BOTH)
        assert agree(found.priorities)
