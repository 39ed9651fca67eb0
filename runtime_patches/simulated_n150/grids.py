# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Make chips with a small compute grid, by an edit of the runtime's core descriptor.

The runtime lets ops use every core of ``compute_with_storage_grid_range``. A Python simulator runs a few cores at a
bearable speed, so the range is cut to the size a test needs. Nothing else of the chip changes: the full 8x10 array of
Tensix tiles, the DRAM banks and the coordinates stay, only the number of cores that ops spread over shrinks.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml

CORE_DESCRIPTOR = "tt_metal/core_descriptors/wormhole_b0_80_arch.yaml"
MAX_COLUMNS, MAX_ROWS = 8, 8  # what fast dispatch leaves to ops on an N150
# How many cores a grid may have: the runtime deals the pages of tensors in L1 to them, and its kernels divide by
# powers of two and by a few other numbers (tt_metal/hw/inc/internal/mod_div_lib.h). Others die when a device is opened.
CORE_COUNTS = (1, 2, 4, 7, 8, 12, 16, 20, 28, 32, 48, 56, 64)


def parse_grid(grid: str | tuple[int, int]) -> tuple[int, int]:
    """Return (columns, rows) of a grid given as ``"4x2"`` (width x height) or as a pair.

    Errors: ValueError naming the grid when it is not one to 8 columns by one to 8 rows, or has none of CORE_COUNTS.
    """
    if isinstance(grid, str):
        match = re.fullmatch(r"\s*(\d+)\s*[xX]\s*(\d+)\s*", grid)
        if match is None:
            raise ValueError(f"a grid is written WIDTHxHEIGHT, for example 4x2; got {grid!r}")
        grid = (int(match[1]), int(match[2]))
    columns, rows = (int(n) for n in grid)
    if not (1 <= columns <= MAX_COLUMNS and 1 <= rows <= MAX_ROWS):
        raise ValueError(
            f"the grid {columns}x{rows} does not fit an N150 (at most {MAX_COLUMNS} columns, {MAX_ROWS} rows)"
        )
    if columns * rows not in CORE_COUNTS:
        raise ValueError(
            f"the grid {columns}x{rows} has {columns * rows} cores; the runtime opens chips of "
            f"{', '.join(map(str, CORE_COUNTS))} cores, for example {smallest_grid(columns * rows)}"
        )
    return columns, rows


def smallest_grid(cores: int, columns: int = 1) -> str:
    """Return the grid of the fewest cores, and then of the fewest columns, with at least `cores` cores and `columns`
    columns. Errors: ValueError if a chip has fewer cores."""
    fitting = [
        (width * height, width, height)
        for width in range(columns, MAX_COLUMNS + 1)
        for height in range(1, MAX_ROWS + 1)
        if width * height in CORE_COUNTS and width * height >= cores
    ]
    if not fitting:
        raise ValueError(f"{cores} cores in {columns} or more columns are more than an N150 has")
    _, width, height = min(fitting)
    return f"{width}x{height}"


def grid_name(grid: str | tuple[int, int]) -> str:
    """Return the canonical spelling of a grid, ``"4x2"``."""
    columns, rows = parse_grid(grid)
    return f"{columns}x{rows}"


@cache  # parsing takes most of the time of an environment
def core_descriptor(ttnn_dir: Path, grid: str | tuple[int, int]) -> bytes:
    """Return the runtime's own Wormhole core descriptor with the compute range of every product cut to `grid`."""
    columns, rows = parse_grid(grid)
    descriptor = yaml.safe_load((Path(ttnn_dir) / CORE_DESCRIPTOR).read_text())
    cut = 0
    for product in descriptor.values():
        for axis in product.values():
            for config in axis.values():
                config["compute_with_storage_grid_range"] = {"start": [0, 0], "end": [columns - 1, rows - 1]}
                cut += 1
    if not cut:
        raise ValueError(f"no compute range was found in {CORE_DESCRIPTOR} of {ttnn_dir}")
    return yaml.safe_dump(descriptor, default_flow_style=None, sort_keys=False).encode()
