# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The exchange in torch: the reference of the op's tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tt_kernels.common.priority import MAX_USERS
from tt_kernels.common.reference import sender


def device_exchange(
    tensors: Sequence[torch.Tensor], priorities: Sequence[Sequence[int]], users: int
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return what both ranks hold afterwards, and the gathered priorities, int32 [2, MAX_USERS].

    tensors: by rank. priorities: by rank, at most MAX_USERS entries.
    """
    taken = tensors[sender(priorities, users)]
    gathered = torch.zeros(2, MAX_USERS, dtype=torch.int32)
    for rank, row in enumerate(priorities):
        gathered[rank, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return [taken.clone(), taken.clone()], gathered
