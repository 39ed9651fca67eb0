# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The LM head, its vocabulary split over the chips, and on each chip into blocks that fit in L1."""

from __future__ import annotations

from collections.abc import Sequence

import ttnn

from .linear import Projection
from .parallel.mesh import TILE

BLOCK_TILES = 1024  # columns of a block, in tiles


def column_blocks(columns: int, max_tiles: int = BLOCK_TILES) -> list[int]:
    """Return the widths of the blocks of one chip's columns (a multiple of 32): nearly equal, at most `max_tiles`
    each."""
    tiles = columns // TILE
    count = -(-tiles // max_tiles)
    return [TILE * (tiles // count + (index < tiles % count)) for index in range(count)]


class LMHead:
    """blocks: [1, 1, hidden, columns] on each chip; side by side they are its part of the padded vocabulary."""

    def __init__(self, blocks: Sequence[Projection]) -> None:
        self.blocks = list(blocks)

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """x: bfloat16 [1, 1, rows, hidden], up to 32 rows -> bfloat16 [1, 1, rows, padded vocab / tp], DRAM."""
        return _joined([block.rows(x, ttnn.DRAM_MEMORY_CONFIG) for block in self.blocks])

    def decode(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """x: a decode step's rows, placed by the decode sharding -> as `__call__`."""
        return _joined([block.decode_into(x, ttnn.DRAM_MEMORY_CONFIG) for block in self.blocks])


def _joined(parts: list[ttnn.Tensor]) -> ttnn.Tensor:
    if len(parts) == 1:
        return parts[0]
    logits = ttnn.concat(parts, dim=3)
    for part in parts:
        ttnn.deallocate(part)
    return logits
