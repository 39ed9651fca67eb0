# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Who sends: the one reference of the rules in kernels/priority.hpp."""

from __future__ import annotations

from collections.abc import Sequence

from tt_kernels.common.priority import UNKNOWN, YIELDED


class NobodyError(ValueError):
    """Both ranks have priority 0: neither holds the result."""


def highest(row: Sequence[int], users: int) -> int:
    """Return a rank's priority: the highest of its users'. A skipped user counts with its entry."""
    return max(row[:users])


def sends(mine: int, peers: int, sp_rank: int) -> bool:
    """Return whether `sp_rank` sends, as it sees it: with the higher priority, on a tie rank 0. A rank that does not
    know its peer's priority goes on alone unless it knows that it holds nothing."""
    if peers == UNKNOWN:
        return mine != YIELDED
    return mine > peers or (mine == peers and sp_rank == 0)


def sender(priorities: Sequence[Sequence[int]], users: int) -> int:
    """Return the rank that sends: the one with the highest priority over its users; rank 0 on a tie.

    Errors: NobodyError for a tie of 0.
    """
    first, second = (highest(row, users) for row in priorities)
    if first == second == YIELDED:
        raise NobodyError("both ranks have priority 0")
    return 0 if sends(first, second, 0) else 1
