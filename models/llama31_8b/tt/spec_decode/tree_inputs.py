# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The inputs of a decode step over token trees (FlashSpecInfer, section 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import ttnn


class TreeInputs(NamedTuple):
    """Tensors on the device, so that a captured trace stays valid; every user's tree has as many nodes.

    tokens: uint32 [1, users * nodes], user by user. prefix: int32 [users], cached tokens before the tree, -1 skips a
    user. intervals: int32 [users, 2, nodes], visiting times: enter, then leave. angles: uint32 [1, users * nodes], a
    node's position: prefix + depth, 0 for skipped users. All ROW_MAJOR, the same on every chip.
    """

    tokens: ttnn.Tensor
    prefix: ttnn.Tensor
    intervals: ttnn.Tensor
    angles: ttnn.Tensor


def depths(enter: torch.Tensor, leave: torch.Tensor) -> torch.Tensor:
    """Count each node's ancestors from its visiting times. enter, leave: integers [users, nodes], enter a permutation
    of 0 .. nodes - 1, leave inclusive -> int64 [users, nodes], 0 for roots."""
    found = torch.zeros(enter.shape, dtype=torch.int64)
    for user, (entered, left) in enumerate(zip(enter.tolist(), leave.tolist(), strict=True)):
        open_until: list[int] = []  # of the ancestors of the node that is visited
        for node in sorted(range(len(entered)), key=entered.__getitem__):
            while open_until and open_until[-1] < entered[node]:
                open_until.pop()
            found[user, node] = len(open_until)
            open_until.append(left[node])
    return found


def node_positions(prefixes: Sequence[int], enter: torch.Tensor, leave: torch.Tensor) -> torch.Tensor:
    """Return each node's position in its text, int64 [users, nodes]; 0 for skipped users (a prefix of -1)."""
    start = torch.tensor(list(prefixes))[:, None]
    return torch.where(start < 0, 0, start + depths(enter, leave))
