# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The cores of a program, and the L1 that is free on them."""

from __future__ import annotations

from collections.abc import Sequence

from tt_kernels.common.kernel import Core
from tt_kernels.common.tensor_facts import UnsupportedError


def l1_free(device) -> int:
    """Return the bytes that circular buffers may take on every core now: from the end of the runtime's own part to the
    lowest tensor in L1."""
    import ttnn

    blocks = ttnn.get_memory_view(device, ttnn.BufferType.L1).block_table
    taken = [int(block["address"]) for block in blocks if block["allocated"] == "yes"]
    return min(taken) if taken else sum(int(block["size"]) for block in blocks)


def noc_core_of(device):
    """Return a function from a core to its (x, y) on the NoC, as kernels address it."""
    import ttnn

    def noc_core(core: Core) -> tuple[int, int]:
        found = device.worker_core_from_logical_core(ttnn.CoreCoord(*core))
        return found.x, found.y

    return noc_core


def grid_cores(device, grid: tuple[int, int] | None, origin: Core) -> tuple[Core, ...]:
    """List the cores of a grid of (columns, rows) from `origin` (default: the rest of the chip), row by row. Errors:
    UnsupportedError."""
    size = device.compute_with_storage_grid_size()
    for name, pair in (("origin", origin), ("grid", grid)):
        if not _is_pair(pair) and not (name == "grid" and pair is None):
            raise UnsupportedError(f"{name} must be two integers (x, y), got {pair!r}")
    x, y = origin
    columns, rows = grid or (size.x - x, size.y - y)
    if min(x, y) < 0 or min(columns, rows) < 1 or x + columns > size.x or y + rows > size.y:
        raise UnsupportedError(
            f"a grid of {columns}x{rows} cores at ({x}, {y}) is not within the device's {size.x}x{size.y}"
        )
    return tuple((x + column, y + row) for row in range(rows) for column in range(columns))


def _is_pair(value) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(type(part) is int for part in value)
