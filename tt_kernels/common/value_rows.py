# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tiles that rows of values take in their circular buffer: the host's side of kernels/value_rows.hpp."""

from __future__ import annotations

REGISTERS = 4  # destination tiles, float32 in half-sync mode


def with_ones(head_tiles: int) -> bool:
    """Whether a tile of ones lies behind each row, so that one multiplication makes output and row sums."""
    return head_tiles < REGISTERS


def stride(head_tiles: int) -> int:
    """Tiles of a row."""
    return head_tiles + with_ones(head_tiles)


def pushes_of_ones(head_tiles: int) -> int:
    """Pages of the buffer of ones."""
    return 1 + with_ones(head_tiles)
