# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What attention-level speculation can be asked for, checked without ttnn and before anything is opened."""

from __future__ import annotations

import math

from tt_kernels.speculative_flash_decode.checks import MAX_THRESHOLD, MAX_USERS

from ..parallel.mesh import TILE, MeshShape


class SpeculationError(ValueError):
    """This mesh or these settings cannot speculate; the message names the values."""


def check_chunk_size(chunk_size: int, capacity: int, name: str = "chunk_size") -> None:
    """Errors: SpeculationError, which calls it `name`, unless `chunk_size` is a multiple of 32 positions that a cache
    of `capacity` holds."""
    whole = isinstance(chunk_size, int) and not isinstance(chunk_size, bool)
    if not whole or chunk_size < TILE or chunk_size % TILE or chunk_size > capacity:
        raise SpeculationError(
            f"{name} must be a multiple of {TILE} up to the cache's capacity of {capacity}, got {chunk_size!r}"
        )


def check_speculation(plan: MeshShape, users: int, capacity: int, chunk_size: int, threshold: float) -> None:
    """Refuse what the rows of `plan` cannot do. Errors: SpeculationError."""
    if plan.sp != 2:
        raise SpeculationError(
            f"attention-level speculation needs a mesh of two rows, such as 2x1; {plan} has {plan.sp}"
        )
    if not 1 <= users <= MAX_USERS:
        raise SpeculationError(f"speculation decodes 1 to {MAX_USERS} users together, got {users}")
    check_chunk_size(chunk_size, capacity)
    number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not number or not (0 <= threshold <= MAX_THRESHOLD or math.isinf(threshold) and threshold > 0):
        raise SpeculationError(
            f"threshold must be from 0 to {MAX_THRESHOLD:g}, or inf to accept every guess, got {threshold!r}"
        )
