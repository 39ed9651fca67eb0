# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which core does what: groups of workers a head, the reducer, the output core and the exchange core.

`parts` mirrors common/kernels/chunk_split.hpp, which every kernel computes for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tt_kernels.common import merge_tree

TILE = 32

Core = tuple[int, int]


def speculative_worker(workers: int) -> int:
    """The worker of a group that owns the guess: the last, which receives nothing in the merge."""
    return workers - 1


@dataclass(frozen=True)
class Part:
    """Key tiles one worker reads for one head: the guess's two ranges, or a slice of them where the guess is alone,
    then its slice of the middle."""

    first: range
    last: range
    middle: range

    def tiles(self) -> list[int]:
        """All of them, in the order they are read."""
        return [*self.first, *self.last, *self.middle]


def parts(
    tokens: int, first_tiles: int, tail_tiles: int, workers: int, speculate: bool, guess_alone: bool = False
) -> list[Part]:
    """The part of each worker of a group for a user with `tokens` cached tokens, whose guess reads so many tiles from
    either end (GuessRange). guess_alone: without speculation, of the guess."""
    total, split = -(-tokens // TILE), speculate or guess_alone
    first_end = min(first_tiles, total) if split else 0
    meet = total <= first_tiles + tail_tiles
    last_begin = (first_end if meet else total - tail_tiles) if split else total
    middle, guess = last_begin - first_end, total - (last_begin - first_end)
    if guess_alone:
        shares = _dealt(guess, workers)
        firsts = [range(min(s.start, first_end), min(s.stop, first_end)) for s in shares]
        lasts = [range(middle + max(s.start, first_end), middle + max(s.stop, first_end)) for s in shares]
        return [Part(first, last, range(0)) for first, last in zip(firsts, lasts, strict=True)]
    share_of_speculative = 0
    if speculate:
        share_of_speculative = middle if workers == 1 else min(max(total // workers - guess, 0), middle)
    others = [w for w in range(workers) if not (speculate and w == speculative_worker(workers))]
    nothing = range(0)
    found: dict[int, Part] = {}
    for worker, share in zip(others, _dealt(middle - share_of_speculative, len(others)), strict=True):
        found[worker] = Part(nothing, nothing, range(first_end + share.start, first_end + share.stop))
    if speculate:
        found[speculative_worker(workers)] = Part(
            range(first_end), range(last_begin, total), range(last_begin - share_of_speculative, last_begin)
        )
    return [found[worker] for worker in range(workers)]


def _dealt(tiles: int, count: int) -> list[range]:
    """`tiles` dealt evenly, the larger shares first."""
    shares, begin = [], 0
    for index in range(count):
        end = begin + tiles // count + (index < tiles % count)
        shares.append(range(begin, end))
        begin = end
    return shares


@dataclass(frozen=True)
class CoreAssignment:
    """groups: the workers of each group, the reducer first; group g does the heads g, g + len(groups), ... of
    all users. output, exchange: their cores, None where the program has none."""

    groups: tuple[tuple[Core, ...], ...]
    output: Core | None
    exchange: Core | None

    @property
    def workers_per_group(self) -> int:
        return len(self.groups[0])

    @property
    def workers(self) -> list[Core]:
        return [core for group in self.groups for core in group]

    @property
    def cores(self) -> list[Core]:
        return self.workers + [core for core in (self.output, self.exchange) if core is not None]


def deal_cores(
    cores: Sequence[Core],
    items: int,
    workers: int,
    *,
    speculate: bool,
    exchange: Core | None = None,
    output: Core | None = None,
) -> CoreAssignment:
    """Assign `cores` (in order) to the roles: as many groups of `workers` as there are, at most one for each of
    the `items` heads of all users.

    exchange: the core that speaks to the peer, in `cores` or not; none without a peer. output: the core that verifies
    and writes the outputs of a speculative program, in `cores` or not; by default the last of the others.
    """
    rest = [core for core in cores if core not in (exchange, output)]
    if speculate and output is None:
        output = rest.pop()
    groups = min(items, len(rest) // workers)
    members = [tuple(rest[g * workers : (g + 1) * workers]) for g in range(groups)]
    return CoreAssignment(tuple(members), output, exchange)


# What steps of a worker cost besides its key tiles, in units of one: every chunk (row maximum, rescale, packing), every
# step of the merge (a partial result on its way to another worker, and merged there), and every head. From the bench,
# at head_dim 64.
CHUNK_COST, MERGE_COST, HEAD_COST = 2.0, 1.5, 3.0


def cost(tiles: int, items: int, groups: int, workers: int, guess_tiles: int, key_tiles: int, speculate: bool) -> float:
    """How long `items` heads of `tiles` cached key tiles each take `groups` groups of `workers`, about; in units
    of the time of a tile. The guess's worker has at least its `guess_tiles`."""
    share = -(-tiles // workers)
    if speculate:
        share = max(share, min(guess_tiles, tiles))
    head = share + CHUNK_COST * -(-share // key_tiles) + MERGE_COST * merge_tree.levels(workers) + HEAD_COST
    return -(-items // groups) * head
