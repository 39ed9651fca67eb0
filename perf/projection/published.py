# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What others measured on N150 chips, from the CSV files of perf/data.

Each file names its source in its first lines: tables 4 to 7 of the ALSpec paper, op by op with its kernel time and its
role, at 1K tokens with tensor parallelism over 1, 2, 4 and 8 chips; tt-metal's published speeds at short and long
contexts; and its times of Ethernet collectives (September 2026: one link per direction, lines of two and four chips, a
ring of eight).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from perf.lib.data_file import FOLDER, Row, read

ALL_GATHER, REDUCE_SCATTER = "all_gather", "reduce_scatter"


@cache
def read_rows(name: str) -> tuple[Row, ...]:
    """Return the rows of perf/data/`name`, numbers as such."""
    return tuple(read(FOLDER / name)[1])


def collective_ns(collective: str, chips: int, size: int) -> float:
    """Return the kernel time of a collective, interpolated between the measured sizes.

    Args:
        collective: "all_gather", "reduce_scatter" or "all_to_all".
        chips: of the row.
        size: bytes of the un-sharded tensor. Below the smallest measured size only the start is left.

    Raises:
        ValueError: for chips or sizes that were not measured.
    """
    rows = [row for row in read_rows("ethernet_2026_09.csv") if row["collective"] == collective]
    points = [(row["bytes"], 1000 * row["us"]) for row in rows if row["chips"] == chips]
    if not points:
        known = sorted({row["chips"] for row in rows})
        raise ValueError(f"no time of {collective} on {chips} chips was measured, only on {known}")
    sizes, ns = zip(*points, strict=True)
    if not 0 < size <= sizes[-1]:
        raise ValueError(f"{collective} was measured up to {sizes[-1]} bytes, got {size}")
    return float(np.interp(size, sizes, ns))


def published_tokens_per_s(chips: int, precision: str, context: int) -> float | None:
    """Return the tokens/s/user that tt-metal publishes for Llama 3.1 8B at batch 1, None for what it does not."""
    for row in read_rows("published_decode.csv"):
        if (row["chips"], row["plan"], row["context"]) == (chips, precision, context):
            return float(row["tokens_per_s"])
    return None
