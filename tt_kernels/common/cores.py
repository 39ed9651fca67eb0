# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sets of worker cores, and the mesh that a tensor is on."""

from __future__ import annotations


def all_worker_cores(device):
    """Return every worker core of `device` (a ttnn.MeshDevice) as a ttnn.CoreRangeSet."""
    import ttnn

    grid = device.compute_with_storage_grid_size()
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(grid.x - 1, grid.y - 1))])


def single_cores(*cores: tuple[int, int]):
    """Return a ttnn.CoreRangeSet of cores given as (x, y), in this order, which is that of a tensor's shards."""
    import ttnn

    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(x, y), ttnn.CoreCoord(x, y)) for x, y in cores])


def core_set(*cores: tuple[int, int]):
    """Return a ttnn.CoreRangeSet of cores given as (x, y), in few rectangles: a program's semaphores and buffers are
    written once per range."""
    import ttnn

    return ttnn.CoreRangeSet([]).merge(single_cores(*cores))


def check_core(device, core: tuple[int, int]) -> None:
    """Raise ValueError unless `core` is the (x, y) of a worker core of `device`."""
    if not isinstance(core, tuple) or len(core) != 2 or any(type(part) is not int for part in core):
        raise ValueError(f"a core is (x, y) of integers, not {core!r}")
    grid = device.compute_with_storage_grid_size()
    if not (0 <= core[0] < grid.x and 0 <= core[1] < grid.y):
        raise ValueError(f"core {core} is outside the grid of {grid.x}x{grid.y} cores")


def core_list(cores) -> list[tuple[int, int]]:
    """List the cores of a ttnn.CoreRangeSet as (x, y), row by row."""
    found: list[tuple[int, int]] = []
    for part in cores.ranges():
        for y in range(part.start.y, part.end.y + 1):
            found.extend((x, y) for x in range(part.start.x, part.end.x + 1))
    return sorted(found, key=lambda core: (core[1], core[0]))


def check_on_device(name: str, tensor, device) -> None:
    """Raise ValueError if the device tensor `tensor` is on another mesh than `device`."""
    found = tensor.device()
    if found.id() != device.id():
        raise ValueError(
            f"{name} is on mesh {found.id()} of shape {tuple(found.shape)}, not on mesh {device.id()} of "
            f"shape {tuple(device.shape)}"
        )
