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
# The clock of a simulated rank runs on while the other computes; a silent peer must not cost a real second.
PATIENCE_S, IMPATIENCE_S = 2e-3, 1e-5
# Longer than ranks start apart, shorter than a guess takes.
SHORT_S = 4e-6
# Words of peer::State: arrivals; call and role in the mailbox of odd calls.
ARRIVALS, MAILBOX_CALL, MAILBOX_ROLE, MAILBOX_USERS = 0, 104, 105, 106


@dataclass(frozen=True)
class Call:
    """One call. positions, gathered: what each rank is given; gathered: the priorities of both, a list a
    rank. before: the priority row of either. heard: call, role and users that rank 0 finds of rank 1 in its
    mailbox. patience_s: of both ranks, or of each."""

    positions: tuple[list[int], list[int]]
    gathered: tuple[list, list]
    before: int
    threshold: float
    running: tuple[int, ...] = (0, 1)
    patience_s: float | tuple[float, float] = PATIENCE_S
    heard: tuple[int, int, int] | None = None
    reset: bool = False


@dataclass(frozen=True)
class Found:
    """What a call left: the error of check(), calls made, and of each rank the priorities and the outputs."""

    message: str | None
    calls: list[int]
    priorities: list[list[int]]
    outputs: list[dict[str, torch.Tensor]]


def gathered_words(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """What an exchange leaves in `gathered`: int32 [1, 1, 2, MAX_USERS]."""
    from tt_kernels.common.priority import MAX_USERS

    values = torch.zeros(1, 1, 2, MAX_USERS, dtype=torch.int64)
    for rank, row in enumerate(rows):
        values[0, 0, rank, : len(row)] = torch.tensor(row)
    return values.to(torch.uint32).view(torch.int32)  # UNKNOWN has the highest bit


def gathered_row(device, rows: Sequence[Sequence[int]]):
    return upload_words(device, gathered_words(rows), "uint32")


def short_tail(case: Case):
    """The GuessRange whose guess leaves keys out of as few as 65 tokens, in chunks of 32."""
    from tt_kernels.speculative_flash_decode.op import GuessRange

    return GuessRange(case.chunk_size, case.chunk_size)


def rank_inputs(device, case: Case, tensors, positions, priorities, gathered, patiences):
    """Both ranks on the rows of the chip, with the same caches."""
    from tt_kernels.speculative_flash_decode.op import ProgramConfig
    from tt_kernels.speculative_flash_decode.virtual_pair import RankInputs

    return [
        RankInputs(
            *tensors,
            upload_words(device, positions[rank], "int32"),
            priorities[rank],
            gathered[rank],
            ProgramConfig((4, 1), (0, rank), workers_per_head=case.workers),
            patiences[rank],
        )
        for rank in (0, 1)
    ]


def layers_body(device, case: Case, q, k, v, layers, initial, known=None):
    """Run `layers` (thresholds, positions) on one pair; priorities carry over from layer to layer.

    Each layer's caches are rolled by its index, so that no two layers have the same outputs. known: the priorities
    of both ranks before each layer: then nothing is read, and nothing written, between the layers' launches.
    Returns of each layer the outputs and the priorities (of the last alone if `known`), then calls and guesses
    sent of both ranks, and the program cache's entries after each layer.
    """
    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.common.priority import priority_row
    from tt_kernels.speculative_flash_decode.virtual_pair import speculative_flash_decode_pair

    pairs = CorePair(device, CORES)
    rows = [upload_words(device, priority_row(row), "uint32") for row in initial]

    def read():
        return [read_priorities(row, case.users) for row in rows]

    def prepare(index, before):
        tensors = [upload(device, part) for part in (q, k.roll(index, 2), v.roll(index, 2))]
        gathered = [gathered_row(device, before) for _ in (0, 1)]
        return rank_inputs(device, case, tensors, [layers[index][1]] * 2, rows, gathered, [PATIENCE_S] * 2)

    ready = [prepare(index, before) for index, before in enumerate(known or [])]
    results, entries = [], []
    for index, (threshold, _) in enumerate(layers):
        ranks = ready[index] if known else prepare(index, read())
        outputs = speculative_flash_decode_pair(
            ranks, pairs, chunk_size=case.chunk_size, guess_range=short_tail(case), threshold=threshold
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
    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.common.peer import PeerError
    from tt_kernels.common.priority import priority_row
    from tt_kernels.speculative_flash_decode.virtual_pair import speculative_flash_decode_pair

    pairs = CorePair(device, CORES)
    tensors = [upload(device, part) for part in (q, k, v)]
    results = []
    for call in calls:
        if call.reset:
            pairs.reset()
        if call.heard:
            _put_into_mailbox(pairs, *call.heard)
        rows = [upload_words(device, priority_row(call.before), "uint32") for _ in (0, 1)]
        gathered = [gathered_row(device, seen) for seen in call.gathered]
        patiences = [call.patience_s] * 2 if isinstance(call.patience_s, float) else call.patience_s
        outputs = speculative_flash_decode_pair(
            rank_inputs(device, case, tensors, call.positions, rows, gathered, patiences),
            pairs,
            chunk_size=case.chunk_size,
            guess_range=short_tail(case),
            threshold=call.threshold,
            running=call.running,
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


def _put_into_mailbox(pairs, call: int, role: int, users: int) -> None:
    """Write what rank 0 finds once rank 1 has arrived."""
    import ttnn

    words = ttnn.to_torch(pairs.state).to(torch.int32)
    words[0, 0, 0, ARRIVALS] = 1
    words[0, 0, 0, [MAILBOX_CALL, MAILBOX_ROLE, MAILBOX_USERS]] = torch.tensor([call, role, users], dtype=torch.int32)
    host = ttnn.from_torch(words, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    ttnn.copy_host_to_device_tensor(host, pairs.state)
