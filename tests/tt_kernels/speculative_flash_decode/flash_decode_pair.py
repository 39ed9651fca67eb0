# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Calls of a virtual pair of the speculative flash decode in a worker with a device, in order and out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import (
    Case,
    download,
    read_priorities,
    upload,
    upload_words,
)

CORES = ((3, 0), (3, 1))  # the exchange cores
# The clock of a simulated member runs on while the other computes; a silent peer must not cost a real second.
PATIENCE_S, IMPATIENCE_S = 2e-3, 1e-5
# Longer than members start apart, shorter than a guess takes.
SHORT_S = 4e-6
# Words of peer::State: arrivals; call and role in the mailbox of odd calls.
ARRIVALS, MAILBOX_CALL, MAILBOX_ROLE, MAILBOX_USERS = 0, 104, 105, 106


@dataclass(frozen=True)
class Call:
    """One call. positions, gathered: what each member is given; gathered: the priorities of both, a list a
    member. before: the priority row of either. heard: call, role and users that member 0 finds of member 1 in its
    mailbox. patience_s: of both members, or of each."""

    positions: tuple[list[int], list[int]]
    gathered: tuple[list, list]
    before: int
    threshold: float
    present: tuple[int, ...] = (0, 1)
    patience_s: float | tuple[float, float] = PATIENCE_S
    heard: tuple[int, int, int] | None = None
    reset: bool = False


@dataclass(frozen=True)
class Found:
    """What a call left: the error of check(), calls made, and of each member the priorities and the outputs."""

    message: str | None
    calls: list[int]
    priorities: list[list[int]]
    outputs: list[dict[str, torch.Tensor]]


def gathered_words(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """What an exchange leaves in `gathered`: int32 [1, 1, 2, MAX_USERS]."""
    from tt_kernels.common.priority import MAX_USERS

    values = torch.zeros(1, 1, 2, MAX_USERS, dtype=torch.int64)
    for member, row in enumerate(rows):
        values[0, 0, member, : len(row)] = torch.tensor(row)
    return values.to(torch.uint32).view(torch.int32)  # UNKNOWN has the highest bit


def gathered_row(device, rows: Sequence[Sequence[int]]):
    return upload_words(device, gathered_words(rows), "uint32")


def short_tail(case: Case):
    """The GuessRange whose guess leaves keys out of as few as 65 tokens, in chunks of 32."""
    from tt_kernels.speculative_flash_decode.op import GuessRange

    return GuessRange(case.chunk_size, case.chunk_size)


def pair_members(device, case: Case, tensors, positions, priorities):
    """Both members on the rows of the chip, with the same caches."""
    from tt_kernels.speculative_flash_decode.op import PairMember, ProgramConfig

    return [
        PairMember(
            *tensors,
            upload_words(device, positions[member], "int32"),
            priorities[member],
            ProgramConfig((4, 1), (0, member), workers_per_head=case.workers),
        )
        for member in (0, 1)
    ]


def layers_body(device, case: Case, q, k, v, layers, initial, known=None):
    """Run `layers` (thresholds, positions) on one pair; priorities carry over from layer to layer.

    Each layer's caches are rolled by its index, so that no two layers have the same outputs. known: the priorities
    of both members before each layer: then nothing is read, and nothing written, between the layers' launches.
    Returns of each layer the outputs and the priorities (of the last alone if `known`), then calls and guesses
    sent of both members, and the program cache's entries after each layer.
    """
    from tt_kernels.common.peer import CorePair
    from tt_kernels.common.priority import priority_row
    from tt_kernels.speculative_flash_decode.op import Peer, speculative_flash_decode_pair

    pairs = CorePair(device, CORES)
    rows = [upload_words(device, priority_row(row), "uint32") for row in initial]

    def read():
        return [read_priorities(row, case.users) for row in rows]

    def prepare(index, before):
        tensors = [upload(device, part) for part in (q, k.roll(index, 2), v.roll(index, 2))]
        members = pair_members(device, case, tensors, [layers[index][1]] * 2, rows)
        return members, Peer(pairs, [gathered_row(device, before) for _ in (0, 1)], PATIENCE_S)

    ready = [prepare(index, before) for index, before in enumerate(known or [])]
    results, entries = [], []
    for index, (threshold, _) in enumerate(layers):
        members, peer = ready[index] if known else prepare(index, read())
        outputs = speculative_flash_decode_pair(
            members, chunk_size=case.chunk_size, guess_range=short_tail(case), threshold=threshold, peer=peer
        )
        entries.append(device.num_program_cache_entries())
        if known:
            results.append((outputs, None))
        else:
            pairs.check()
            results.append(([download(out) for out in outputs], read()))
    if known:
        pairs.check()
        last = len(layers) - 1
        results = [
            ([download(out) for out in outputs], read() if index == last else None)
            for index, (outputs, _) in enumerate(results)
        ]
    return results, [(state.calls, state.sent) for state in pairs.states()], entries


def calls_body(device, case: Case, q, k, v, calls: list[Call]) -> list[Found]:
    """Run `calls` on one pair, whatever becomes of them."""
    from tt_kernels.common.peer import CorePair, PeerError
    from tt_kernels.common.priority import priority_row
    from tt_kernels.speculative_flash_decode.op import speculative_flash_decode_pair

    pairs = CorePair(device, CORES)
    tensors = [upload(device, part) for part in (q, k, v)]
    results = []
    for call in calls:
        if call.reset:
            pairs.reset()
        if call.heard:
            _put_into_mailbox(pairs, *call.heard)
        rows = [upload_words(device, priority_row(call.before), "uint32") for _ in (0, 1)]
        outputs = speculative_flash_decode_pair(
            pair_members(device, case, tensors, call.positions, rows),
            chunk_size=case.chunk_size,
            guess_range=short_tail(case),
            threshold=call.threshold,
            peer=_peer(pairs, [gathered_row(device, seen) for seen in call.gathered], call.patience_s),
            present=call.present,
        )
        try:
            pairs.check()
            message = None
        except PeerError as error:
            message = str(error)
        made = [state.calls for state in pairs.states()]
        priorities = [read_priorities(row, case.users) for row in rows]
        results.append(Found(message, made, priorities, [download(out) for out in outputs]))
    return results


def _peer(pairs, gathered, patience_s):
    """The Peer of a call; with a patience for each member one that gives them out in order."""
    from tt_kernels.speculative_flash_decode.op import Peer

    if isinstance(patience_s, float):
        return Peer(pairs, gathered, patience_s)

    class Uneven(Peer):
        def args(self, peer_exact, link):
            member = [tuple(pairs.link_args(index)) for index in (0, 1)].index(tuple(link))
            return Peer(pairs, gathered, patience_s[member]).args(peer_exact, link)

    return Uneven(pairs, gathered)


def _put_into_mailbox(pairs, call: int, role: int, users: int) -> None:
    """As if member 1 had arrived at member 0."""
    import ttnn

    words = ttnn.to_torch(pairs.state).to(torch.int32)
    words[0, 0, 0, ARRIVALS] = 1
    words[0, 0, 0, [MAILBOX_CALL, MAILBOX_ROLE, MAILBOX_USERS]] = torch.tensor([call, role, users], dtype=torch.int32)
    host = ttnn.from_torch(words, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    ttnn.copy_host_to_device_tensor(host, pairs.state)
