# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of decode attention, checked without ttnn and before a device is opened."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tt_kernels.speculative_flash_decode.checks import MAX_THRESHOLD, MAX_USERS
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.tile_lists import MAX_TILES

from ..parallel.mesh import TILE, MeshShape

POLICIES = ("exact", "sink", "static", "alspec")
PREDICTORS = ("ends", "followed")


@dataclass(frozen=True)
class AttentionSettings:
    """policy: one of POLICIES, as in the reference. chunk_size: tokens of the guess at either end, a multiple of 32.
    threshold: relative error up to which alspec accepts a guess. static_layers: the layers where static takes the
    guess. predictor: what alspec's guess reads: `ends`, or `followed`: as many keys, half of them in the tiles on which
    the attention lay before. Raises ValueError for another policy or predictor, and for one beside another policy."""

    policy: str = "exact"
    chunk_size: int = 128
    threshold: float = 0.10
    static_layers: frozenset[int] = frozenset()
    predictor: str = "ends"

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"no attention policy {self.policy!r}; policies: {', '.join(POLICIES)}")
        if self.predictor not in PREDICTORS:
            raise ValueError(f"no predictor {self.predictor!r}; predictors: {', '.join(PREDICTORS)}")
        if self.predictor != "ends" and self.policy != "alspec":
            raise ValueError(f"predictor {self.predictor!r} needs alspec, which verifies, not {self.policy}")

    @property
    def guess_range(self) -> GuessRange | None:
        """What alspec's guess reads, None for the op's default. Raises SpeculationError for a chunk size that
        `followed` cannot divide."""
        return None if self.predictor == "ends" else followed_range(self.chunk_size)


class SpeculationError(ValueError):
    """This mesh or these settings do not support speculation; the message names the values."""


def followed_range(chunk_size: int) -> GuessRange:
    """Return a guess as large as both ends: one tile of first tokens, `chunk_size` last ones, and for the rest tiles
    that lists name. Raises SpeculationError."""
    most = TILE * (MAX_TILES + 1)
    if chunk_size % TILE or not 2 * TILE <= chunk_size <= most:
        raise SpeculationError(
            f"a guess that follows the attention has chunks of {2 * TILE} to {most} tokens, a multiple of {TILE}, got "
            f"{chunk_size}"
        )
    return GuessRange(TILE, chunk_size, whole_tail=True, tiles=chunk_size // TILE - 1)


def check_chunk_size(chunk_size: int, capacity: int, name: str = "chunk_size") -> None:
    """Raises SpeculationError, which calls it `name`, unless `chunk_size` is a multiple of 32 up to the cache's
    capacity."""
    whole = isinstance(chunk_size, int) and not isinstance(chunk_size, bool)
    if not whole or chunk_size < TILE or chunk_size % TILE or chunk_size > capacity:
        raise SpeculationError(
            f"{name} must be a multiple of {TILE} up to the cache's capacity of {capacity}, got {chunk_size!r}"
        )


def check_speculation(mesh_shape: MeshShape, users: int, capacity: int, chunk_size: int, threshold: float) -> None:
    """Raises SpeculationError for a mesh, batch or setting without attention-level speculation."""
    if mesh_shape.sp != 2:
        raise SpeculationError(
            f"attention-level speculation needs a mesh of two rows, such as 2x1; {mesh_shape} has {mesh_shape.sp}"
        )
    if not 1 <= users <= MAX_USERS:
        raise SpeculationError(f"speculation decodes 1 to {MAX_USERS} users together, got {users}")
    check_chunk_size(chunk_size, capacity)
    number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not number or not (0 <= threshold <= MAX_THRESHOLD or math.isinf(threshold) and threshold > 0):
        raise SpeculationError(
            f"threshold must be from 0 to {MAX_THRESHOLD:g}, or inf to accept every guess, got {threshold!r}"
        )
