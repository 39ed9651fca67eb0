# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How many tiles the rows of values take in their circular buffer: the host side of kernels/value_rows.hpp."""

from __future__ import annotations

REGISTERS = 4  # destination tiles, float32 in half-sync mode


def with_ones(head_tiles: int) -> bool:
    """Return whether a tile of ones follows each row, so that one multiplication makes output and row sums."""
    return head_tiles < REGISTERS


def stride(head_tiles: int) -> int:
    """Return the tiles of a row."""
    return head_tiles + with_ones(head_tiles)


def pushes_of_ones(head_tiles: int) -> int:
    """Return the pages of the buffer of ones."""
    return 1 + with_ones(head_tiles)
