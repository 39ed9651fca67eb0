# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sets of worker cores."""

from __future__ import annotations


def all_worker_cores(device):
    """Every worker core of `device` (a ttnn.MeshDevice), as a ttnn.CoreRangeSet."""
    import ttnn

    grid = device.compute_with_storage_grid_size()
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(grid.x - 1, grid.y - 1))])


def core_set(*cores: tuple[int, int]):
    """A ttnn.CoreRangeSet of single cores, given as (x, y)."""
    import ttnn

    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(x, y), ttnn.CoreCoord(x, y)) for x, y in cores])


def core_list(cores) -> list[tuple[int, int]]:
    """The cores of a ttnn.CoreRangeSet as (x, y), row by row."""
    found = []
    for part in cores.ranges():
        for y in range(part.start.y, part.end.y + 1):
            found.extend((x, y) for x in range(part.start.x, part.end.x + 1))
    return sorted(found, key=lambda core: (core[1], core[0]))
