# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which tiles `select_tiles` chooses, one head after the other in Python's integers."""

from __future__ import annotations

from collections.abc import Sequence

PART = 1 << 16  # of a budget


def unread_part(budget: float) -> int:
    """Return the part of a head's mass that may stay unread, in units of 2^-16."""
    return PART - round(budget * PART)


def chosen_tiles(masses: Sequence[int], budget: float, begin: int, end: int) -> list[int]:
    """Return the tiles of [begin, end) that a guess reads, ascending: the heaviest, the lower one where two are equal,
    until the masses of the unread ones are at most 1 - budget of all of `masses`."""
    order = sorted(range(begin, end), key=lambda tile: (-masses[tile], tile))
    left, unread = sum(masses[begin:end]), sum(masses) * unread_part(budget)
    chosen: list[int] = []
    while left * PART > unread:
        chosen.append(order[len(chosen)])
        left -= masses[chosen[-1]]
    return sorted(chosen)
