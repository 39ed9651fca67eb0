# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The exchange in torch, and the rules of a pair's priorities: the oracle of the op's tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tt_kernels.common.priority import ACCEPTED, MAX_USERS, RECEIVED, REJECTED


class NobodyError(ValueError):
    """Both members have priority 0: neither holds the result."""


def sender(priorities: Sequence[Sequence[int]], users: int) -> int:
    """The member that sends: the one with the highest priority over its users; member 0 on a tie above 0."""
    highest = [max(row[:users]) for row in priorities]
    if highest == [ACCEPTED, ACCEPTED]:
        raise NobodyError("both members have priority 0")
    return 1 if highest[1] > highest[0] else 0


def device_exchange(
    tensors: Sequence[torch.Tensor], priorities: Sequence[Sequence[int]], users: int
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """What both members hold afterwards, and the gathered priorities, int32 [2, MAX_USERS].

    tensors: each member's. priorities: each member's row, at most MAX_USERS entries.
    """
    taken = tensors[sender(priorities, users)]
    gathered = torch.zeros(2, MAX_USERS, dtype=torch.int32)
    for member, row in enumerate(priorities):
        gathered[member, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return [taken.clone(), taken.clone()], gathered


def after_verification(
    priorities: Sequence[Sequence[int]], users: int, accepted: Sequence[bool]
) -> list[list[int]]:
    """Both rows after a layer (algorithm 2): the sender's by outcome, the receiver's RECEIVED."""
    holder = sender(priorities, users)
    rows = [[RECEIVED] * users, [RECEIVED] * users]
    rows[holder] = [ACCEPTED if outcome else REJECTED for outcome in accepted]
    return rows
