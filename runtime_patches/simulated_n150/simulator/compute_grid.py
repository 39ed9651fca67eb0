# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tell which workers of a simulated chip are its compute grid, from a variable that run.sh sets."""

from __future__ import annotations

import os

GRID_VARIABLE = "SIMULATED_N150_GRID"


def compute_grid() -> tuple[int, int] | None:
    """Return (columns, rows) of the compute grid as run.sh tells it; None when the server was started without."""
    text = os.environ.get(GRID_VARIABLE)
    if not text:
        return None
    columns, _, rows = text.partition("x")
    if not (columns.isdigit() and rows.isdigit()):
        raise ValueError(f"{GRID_VARIABLE} is COLUMNSxROWS, for example 2x2; got {text!r}")
    return int(columns), int(rows)


def logical_place(coordinate: tuple[int, int]) -> tuple[int, int]:
    """Return (column, row) among the workers of a worker's NoC 0 coordinate, both from 0."""
    from framework.device.wormhole import Wormhole

    x, y = coordinate
    return Wormhole._TENSIX_PHYSICAL_X_VALUES.index(x), Wormhole._TENSIX_PHYSICAL_Y_VALUES.index(y)
