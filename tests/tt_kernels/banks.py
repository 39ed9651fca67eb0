# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Weights in a chip's DRAM banks, in a worker."""


def banks(inputs: int, columns: int):
    """Return the ttnn.MemoryConfig of a weight with so many columns in each of twelve banks."""
    import ttnn

    grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(11, 0))})
    spec = ttnn.ShardSpec(grid, [inputs, columns], ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.DRAM, spec)
