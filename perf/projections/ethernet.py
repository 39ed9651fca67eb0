# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How long collectives over Wormhole's Ethernet take, by bytes, as tt-metal measured them in September 2026.

perf/data/ethernet_2026_09.csv: one link per direction, lines of two and four chips, a ring of eight.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from perf.projections.estimator.tables import read_rows

ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = "all_gather", "reduce_scatter", "all_to_all"


@cache
def _measured(collective: str, chips: int) -> tuple[tuple[float, float], ...]:
    """(bytes, ns), ascending."""
    rows = [row for row in read_rows("ethernet_2026_09.csv") if row["collective"] == collective]
    points = tuple((float(row["bytes"]), 1000 * float(row["us"])) for row in rows if int(row["chips"]) == chips)
    if not points:
        known = sorted({int(row["chips"]) for row in rows})
        raise ValueError(f"no time of {collective} on {chips} chips was measured, only on {known}")
    return points


def collective_ns(collective: str, chips: int, size: int) -> float:
    """Return the kernel time of a collective in nanoseconds, interpolated between the measured sizes.

    size: bytes of the un-sharded tensor. Below the smallest measured size the time is that one's, since nothing but its
    start is left. Errors: ValueError for chips or sizes that were not measured.
    """
    points = _measured(collective, chips)
    sizes, times = zip(*points, strict=True)
    if not 0 < size <= sizes[-1]:
        raise ValueError(f"{collective} was measured up to {sizes[-1]:.0f} bytes, got {size}")
    return float(np.interp(size, sizes, times))


def exchange_ns(size: int) -> float:
    """Return what two chips take to send each other `size` bytes each: an all-to-all of twice as much."""
    return collective_ns(ALL_TO_ALL, 2, 2 * size)
