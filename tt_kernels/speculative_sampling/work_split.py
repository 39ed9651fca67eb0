# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which cores have which users and which ids, on plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tt_kernels.common.tensor_facts import UnsupportedError

Core = tuple[int, int]
TILE_IDS = 1024
# As lines.hpp has it: groups of a hub, and so users at a time where the vocabulary is split.
MAX_GROUPS = 8
# By default a core has at least this many tiles of ids: with fewer, telling the others takes longer than it saves.
MIN_TILES = 4


@dataclass(frozen=True)
class Slice:
    """The ids of a core. first: the index of its first id among the chip's; count."""

    first: int
    count: int


@dataclass(frozen=True)
class WorkSplit:
    """groups: for each group the cores that share a user's ids on this chip; users take turns. hub: the core that talks
    for them, None if a core has all ids of its users."""

    groups: tuple[tuple[Core, ...], ...]
    slices: tuple[Slice, ...]
    hub: Core | None

    @property
    def walkers(self) -> list[Core]:
        return [core for group in self.groups for core in group]


def choose_work_split(
    cores: Sequence[Core], users: int, ids: int, cores_per_user: int | None, hub: Core | None, chips: int
) -> WorkSplit:
    """Split `users` and a chip's `ids` over its `cores`. cores_per_user: None chooses. hub: the core for it, if it is
    given. Errors: UnsupportedError."""
    tiles = -(-ids // TILE_IDS)
    if cores_per_user is None:
        room = (len(cores) - 1) // min(users, MAX_GROUPS)
        cores_per_user = max(1, min(room, tiles // MIN_TILES))
    if type(cores_per_user) is not int or not 1 <= cores_per_user <= tiles:
        raise UnsupportedError(
            f"cores_per_user must be from 1 to {tiles}, the tiles of 1024 ids on a chip, got {cores_per_user!r}"
        )
    slices = _slices(ids, tiles, cores_per_user)
    if cores_per_user == 1 and chips == 1:
        return WorkSplit(tuple((core,) for core in cores[:users]), slices, None)
    hub = cores[-1] if hub is None else hub
    free = [core for core in cores if core != hub]
    groups = min(users, MAX_GROUPS, len(free) // cores_per_user)
    if hub not in cores or groups == 0:
        raise UnsupportedError(
            f"a split vocabulary with {cores_per_user} cores per user needs these and a hub, {hub}: the grid has "
            f"{len(cores)} cores, {list(cores)[:4]}..."
        )
    starts = range(0, groups * cores_per_user, cores_per_user)
    return WorkSplit(tuple(tuple(free[start : start + cores_per_user]) for start in starts), slices, hub)


def _slices(ids: int, tiles: int, cores: int) -> tuple[Slice, ...]:
    """Deal whole tiles to the cores, each as many as another or one more; the last core has the rest of the ids."""
    borders = [min(ids, TILE_IDS * (tiles * core // cores)) for core in range(cores)] + [ids]
    return tuple(Slice(first, stop - first) for first, stop in zip(borders, borders[1:]))
