# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sender and receiver as two groups of cores of one simulated chip, in one program, layer after layer."""

from __future__ import annotations

import pytest
import torch
from flash_decode_programs import CHIP, Case

from tt_kernels.common.priority import ACCEPTED, BYPASSED, RECEIVED, REJECTED
from tt_kernels.speculative_flash_decode.reference import (
    is_sender,
    outcomes,
    receiver_outcomes,
    speculative_flash_decode_reference,
)

pytestmark = pytest.mark.sim

LIMIT_S = 900
CASE = Case(2, 1, 64, 96, 32, users=2)
HIT, MISS = 100.0, 0.0  # thresholds
# The clock of a simulated member runs on while the other computes; a silent peer must not cost a real second.
PATIENCE_S, IMPATIENCE_S = 2e-3, 1e-5


def pair_body(device, case: Case, q, k, v, layers, initial):
    """Run `layers` (thresholds, positions) on one pair; priorities carry over from layer to layer.

    Each layer's caches are rolled by its index, so that no two layers have the same outputs.
    """
    from flash_decode_programs import download, read_priorities, upload, upload_words

    from tt_kernels.common.peer import CorePair
    from tt_kernels.common.priority import MAX_USERS, priority_row
    from tt_kernels.speculative_flash_decode.op import (
        PairMember,
        Peer,
        ProgramConfig,
        speculative_flash_decode_pair,
    )

    pairs = CorePair(device, ((3, 0), (3, 1)))
    rows = [upload_words(device, priority_row(row), "uint32") for row in initial]
    results, entries = [], []
    for index, (threshold, positions) in enumerate(layers):
        gathered = torch.zeros(1, 1, 2, MAX_USERS, dtype=torch.int32)
        for member in (0, 1):
            gathered[0, 0, member, : case.users] = torch.tensor(read_priorities(rows[member], case.users))
        at = upload_words(device, positions, "int32")
        members = [
            PairMember(
                upload(device, q), upload(device, k.roll(index, 2)), upload(device, v.roll(index, 2)), at,
                rows[member], ProgramConfig((4, 1), (0, member), workers_a_head=1),
            )
            for member in (0, 1)
        ]  # fmt: skip
        peer = Peer(pairs, [upload_words(device, gathered, "uint32") for _ in (0, 1)], PATIENCE_S)
        outputs = speculative_flash_decode_pair(
            members, chunk_size=case.chunk_size, threshold=threshold, peer=peer
        )
        pairs.check()
        priorities = [read_priorities(row, case.users) for row in rows]
        results.append(([download(out) for out in outputs], priorities))
        entries.append(device.num_program_cache_entries())
    return results, [(state.calls, state.sent) for state in pairs.states()], entries


def check_layers(device, layers, initial):
    q, k, v = CASE.random(5)
    results, states, entries = device.run(pair_body, CASE, q, k, v, layers, initial, timeout=LIMIT_S)
    priorities = [list(row) for row in initial]
    sent = [0, 0]
    for index, ((threshold, positions), (outputs, after)) in enumerate(zip(layers, results, strict=True)):
        sender = 0 if is_sender(*priorities, positions, first_member=True) else 1
        sent[sender] += 1
        reference = speculative_flash_decode_reference(
            q, k.roll(index, 2), v.roll(index, 2), positions, chunk_size=CASE.chunk_size
        )
        mine, theirs = outputs[sender], outputs[1 - sender]
        for name in ("exact", "guess"):
            torch.testing.assert_close(mine[name].double(), getattr(reference, name), atol=0.03, rtol=0.02)
            assert torch.equal(theirs[name], mine["guess"]), (
                f"layer {index}: the receiver holds the guess, bit by bit"
            )
        assert not theirs["distance_sq"].any() and not theirs["norm_sq"].any()
        priorities[sender] = outcomes(
            reference.distance_sq,
            reference.norm_sq,
            positions,
            chunk_size=CASE.chunk_size,
            threshold=threshold,
        )
        priorities[1 - sender] = receiver_outcomes(positions)
        assert after == priorities, f"layer {index}, member {sender} sent"
    assert states == [(len(layers), sent[0]), (len(layers), sent[1])]
    assert entries[-1] == entries[1], "all roles and outcomes run from one program"
    return sent


def test_roles_and_outcomes_alternate_over_layers(sim_device):
    """Accepted: the receiver is the next sender. Rejected: the sender stays. Bypassed and skipped users
    beside it."""
    full = [64, -1]
    layers = [
        (HIT, full), (HIT, full), (MISS, full), (HIT, [95, 65]), (MISS, [40, 90]),
        (HIT, [40, 95]), (HIT, full), (MISS, full), (HIT, [-1, 80]), (HIT, full),
    ]  # fmt: skip
    sent = check_layers(sim_device(CHIP), layers, [[REJECTED] * 2, [ACCEPTED] * 2])
    assert min(sent) >= 3


def test_on_a_tie_the_first_member_sends(sim_device):
    sent = check_layers(sim_device(CHIP), [(HIT, [70, -1]), (HIT, [70, -1])], [[REJECTED, 0], [REJECTED, 0]])
    assert sent == [1, 1]
    assert RECEIVED > ACCEPTED and BYPASSED > REJECTED


def silent_body(device, case: Case, q, k, v, role: int):
    """One member of a pair alone, in the given role; then the pair again after a reset."""
    from flash_decode_programs import download, read_priorities, upload, upload_words

    from tt_kernels.common.peer import CorePair, PeerError
    from tt_kernels.common.priority import MAX_USERS, priority_row
    from tt_kernels.speculative_flash_decode.op import (
        PairMember,
        Peer,
        ProgramConfig,
        speculative_flash_decode_pair,
    )

    pairs = CorePair(device, ((3, 0), (3, 1)))
    gathered = torch.zeros(1, 1, 2, MAX_USERS, dtype=torch.int32)
    gathered[0, 0, role] = REJECTED
    at = upload_words(device, [64, -1], "int32")
    members = [
        PairMember(
            *(upload(device, part) for part in (q, k, v)), at,
            upload_words(device, priority_row(int(gathered[0, 0, member, 0])), "uint32"),
            ProgramConfig((4, 1), (0, member), workers_a_head=1),
        )
        for member in (0, 1)
    ]  # fmt: skip
    words = [upload_words(device, gathered, "uint32") for _ in (0, 1)]

    def run(patience, present):
        return speculative_flash_decode_pair(
            members,
            chunk_size=case.chunk_size,
            threshold=HIT,
            peer=Peer(pairs, words, patience),
            present=present,
        )

    alone = run(IMPATIENCE_S, (0,))
    try:
        pairs.check()
        message = None
    except PeerError as error:
        message = str(error)
    priority = read_priorities(members[0].priority, case.users)
    run(IMPATIENCE_S, (0,))  # gives up at once: its state says that it is without a peer
    calls = pairs.states()[0].calls
    pairs.reset()
    both = run(PATIENCE_S, (0, 1))
    pairs.check()
    return message, calls, priority, download(alone[0]), [download(out) for out in both]


@pytest.mark.parametrize("role", [0, 1], ids=["sender", "receiver"])
def test_a_silent_peer_ends_in_the_bounded_error(sim_device, role):
    q, k, v = CASE.random(6)
    message, calls, priority, alone, both = sim_device(CHIP).run(
        silent_body, CASE, q, k, v, role, timeout=LIMIT_S
    )
    assert message == "member 0 (core (3, 0)) gave up in call 1: the peer did not arrive"
    assert calls == 1
    if role == 0:  # a sender's own results do not depend on its peer
        assert torch.equal(alone["exact"], both[0]["exact"]) and priority == [ACCEPTED, ACCEPTED]
    else:
        assert priority == [ACCEPTED, ACCEPTED], "a receiver without a guess leaves its priorities alone"
    assert torch.equal(both[1 - role]["exact"], both[role]["guess"])
