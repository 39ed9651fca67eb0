# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token embedding, its columns split over the chips: each produces its part of the residual."""

from __future__ import annotations

import ttnn


class Embedding:
    """table: bfloat16 [vocab, hidden / tp] on each chip, ROW_MAJOR."""

    def __init__(self, table: ttnn.Tensor) -> None:
        self.table = table

    def __call__(self, tokens: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
        """tokens: uint32 [1, rows], ROW_MAJOR -> bfloat16 [1, 1, rows, hidden / tp], TILE."""
        rows = ttnn.embedding(tokens, self.table, layout=ttnn.TILE_LAYOUT, memory_config=memory)
        return ttnn.unsqueeze_to_4D(rows)
