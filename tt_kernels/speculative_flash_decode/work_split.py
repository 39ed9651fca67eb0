# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which core does what: groups of workers a head, the reducer, the output core and the exchange core.

`parts` mirrors common/kernels/chunk_split.hpp, which every kernel computes for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

TILE = 32
REDUCER = 0

Core = tuple[int, int]


def speculative_worker(workers: int) -> int:
    """The worker of a group that owns the guess: not the reducer, where there is another."""
    return 1 if workers > 1 else 0


@dataclass(frozen=True)
class Part:
    """Key tiles one worker reads for one head: the guess's two ranges, then its slice of the middle."""

    first: range
    last: range
    middle: range

    def tiles(self) -> list[int]:
        """All of them, in the order they are read."""
        return [*self.first, *self.last, *self.middle]


def parts(tokens: int, chunk_tiles: int, workers: int, speculate: bool) -> list[Part]:
    """The part of each worker of a group for a user with `tokens` cached tokens."""
    total = -(-tokens // TILE)
    first_end = min(chunk_tiles, total) if speculate else 0
    last_begin = (total - chunk_tiles if total > 2 * chunk_tiles else first_end) if speculate else total
    middle, guess = last_begin - first_end, total - (last_begin - first_end)
    share_of_speculative = 0
    if speculate:
        share_of_speculative = middle if workers == 1 else min(max(-(-total // workers) - guess, 0), middle)
    others = [w for w in range(workers) if not (speculate and w == speculative_worker(workers))]
    nothing = range(0)
    found: dict[int, Part] = {}
    begin, dealt = first_end, middle - share_of_speculative
    for index, worker in enumerate(others):
        end = begin + dealt // len(others) + (index < dealt % len(others))
        found[worker] = Part(nothing, nothing, range(begin, end))
        begin = end
    if speculate:
        found[speculative_worker(workers)] = Part(
            range(first_end), range(last_begin, total), range(last_begin - share_of_speculative, last_begin)
        )
    return [found[worker] for worker in range(workers)]


@dataclass(frozen=True)
class CorePlan:
    """groups: the workers of each group, the reducer first; group g does the heads g, g + len(groups), ... of
    all users. output, exchange: their cores, None where the program has none."""

    groups: tuple[tuple[Core, ...], ...]
    output: Core | None
    exchange: Core | None

    @property
    def workers_a_group(self) -> int:
        return len(self.groups[0])

    @property
    def workers(self) -> list[Core]:
        return [core for group in self.groups for core in group]

    @property
    def cores(self) -> list[Core]:
        return self.workers + [core for core in (self.output, self.exchange) if core is not None]


def plan_cores(
    cores: list[Core],
    items: int,
    *,
    speculate: bool,
    exchange: Core | None = None,
    workers_a_head: int | None = None,
) -> CorePlan:
    """Assign `cores` (in order) to the roles for `items` heads of all users.

    exchange: the core that speaks to the peer, in `cores` or not; none without a peer. The last of the others
    verifies and writes the outputs of a speculative program. workers_a_head: default as many as take the
    shortest time; see `_best_group`. Errors: ValueError with both numbers when the cores do not suffice.
    """
    if workers_a_head is not None and workers_a_head < 1:
        raise ValueError(f"workers_a_head must be at least 1, got {workers_a_head}")
    rest = [core for core in cores if core != exchange]
    wanted, special = workers_a_head or 1, int(speculate)
    available = len(rest) - special
    if available < wanted:
        raise ValueError(
            f"{wanted} worker(s) a head and {special} output core(s) need {wanted + special} cores, the grid "
            f"has {len(rest)} for them"
        )
    workers = workers_a_head or _best_group(available, items)
    groups = min(items, available // workers)
    members = [tuple(rest[g * workers : (g + 1) * workers]) for g in range(groups)]
    return CorePlan(tuple(members), rest[-1] if speculate else None, exchange)


# What a head costs its group however many share it (merging, sending), against one worker doing all of it.
_FIXED_SHARE = 0.05


def _best_group(available: int, items: int) -> int:
    """Workers a group for the shortest time: rounds of heads times (an even share of a head + what is not
    shared)."""

    def time(workers: int) -> float:
        return -(-items // min(items, available // workers)) * (1 / workers + _FIXED_SHARE)

    return min(range(1, available + 1), key=lambda workers: (time(workers), -workers))
