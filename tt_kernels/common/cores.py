# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sets of worker cores, where they are on the NoC, what L1 they have free, and the mesh that a tensor is on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.tensor_facts import UnsupportedError

Core = tuple[int, int]


def all_worker_cores(device: ttnn.MeshDevice) -> Any:
    """Return every worker core of `device` (a ttnn.MeshDevice) as a ttnn.CoreRangeSet."""
    grid = device.compute_with_storage_grid_size()
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(grid.x - 1, grid.y - 1))])


def single_cores(*cores: tuple[int, int]) -> Any:
    """Return a ttnn.CoreRangeSet of cores given as (x, y), in this order, which is that of a tensor's shards."""
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(x, y), ttnn.CoreCoord(x, y)) for x, y in cores])


def core_set(*cores: tuple[int, int]) -> Any:
    """Return a ttnn.CoreRangeSet of cores given as (x, y), in few rectangles: a program's semaphores and buffers are
    written once per range."""
    return ttnn.CoreRangeSet([]).merge(single_cores(*cores))


def check_core(device: ttnn.MeshDevice, core: tuple[int, int]) -> None:
    """Raise ValueError unless `core` is the (x, y) of a worker core of `device`."""
    if not isinstance(core, tuple) or len(core) != 2 or any(type(part) is not int for part in core):
        raise ValueError(f"a core is (x, y) of integers, not {core!r}")
    grid = device.compute_with_storage_grid_size()
    if not (0 <= core[0] < grid.x and 0 <= core[1] < grid.y):
        raise ValueError(f"core {core} is outside the grid of {grid.x}x{grid.y} cores")


def core_list(cores: ttnn.CoreRangeSet) -> list[tuple[int, int]]:
    """List the cores of a ttnn.CoreRangeSet as (x, y), row by row."""
    found: list[tuple[int, int]] = []
    for part in cores.ranges():
        for y in range(part.start.y, part.end.y + 1):
            found.extend((x, y) for x in range(part.start.x, part.end.x + 1))
    return sorted(found, key=lambda core: (core[1], core[0]))


def check_on_device(name: str, tensor: ttnn.Tensor, device: ttnn.MeshDevice) -> None:
    """Raise UnsupportedError if the device tensor `tensor` is on another mesh than `device`."""
    found = tensor.device()
    if found.id() != device.id():
        raise UnsupportedError(
            f"{name} is on mesh {found.id()} of shape {tuple(found.shape)}, not on mesh {device.id()} of "
            f"shape {tuple(device.shape)}"
        )


def l1_free(device: ttnn.MeshDevice) -> int:
    """Return the bytes that circular buffers may take on every core now: from the end of the runtime's own part to the
    lowest tensor in L1."""
    blocks = ttnn.get_memory_view(device, ttnn.BufferType.L1).block_table
    taken = [int(block["address"]) for block in blocks if block["allocated"] == "yes"]
    return min(taken) if taken else sum(int(block["size"]) for block in blocks)


def noc_core_of(device: ttnn.MeshDevice) -> Any:
    """Return a function from a core to its (x, y) on the NoC, as kernels address it."""

    def noc_core(core: Core) -> tuple[int, int]:
        found = device.worker_core_from_logical_core(ttnn.CoreCoord(*core))
        return found.x, found.y

    return noc_core


def grid_cores(device: ttnn.MeshDevice, grid: tuple[int, int] | None = None, origin: Core = (0, 0)) -> tuple[Core, ...]:
    """List the cores of a grid of (columns, rows) from `origin` (default: the rest of the chip), row by row. Errors:
    UnsupportedError."""
    size = device.compute_with_storage_grid_size()
    given: dict[str, Any] = {"origin": origin} if grid is None else {"origin": origin, "grid": grid}
    for name, pair in given.items():
        if not isinstance(pair, Sequence) or len(pair) != 2 or any(type(part) is not int for part in pair):
            raise UnsupportedError(f"{name} must be two integers (x, y), got {pair!r}")
    x, y = origin
    columns, rows = grid or (size.x - x, size.y - y)
    if min(x, y) < 0 or min(columns, rows) < 1 or x + columns > size.x or y + rows > size.y:
        raise UnsupportedError(
            f"a grid of {columns}x{rows} cores at ({x}, {y}) is not within the device's {size.x}x{size.y}"
        )
    return tuple((x + column, y + row) for row in range(rows) for column in range(columns))
