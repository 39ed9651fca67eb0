# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What bench_decode_attention makes of cycles, and that its points are what the fast plan chooses by."""

from __future__ import annotations

import pytest

from models.llama31_8b.tt.sharding import MEASURED
from perf.ops.bench_decode_attention import POINTS, Measured, Point, report


def test_points_are_of_as_many_users_as_flash_decode_takes():
    assert {point.users for point in POINTS} <= set(range(1, 9)) and Point(8, 1024) in POINTS
    assert "1 to 8 users" in MEASURED and "perf.ops.bench_decode_attention" in MEASURED


def test_the_move_counts_for_ours():
    results = [
        (Point(8, 1024), Measured(1000, 100, 600, 0.02)),
        (Point(1, 1024), Measured(1000, 100, 700, 0.01)),
    ]
    lines = report(results).splitlines()
    assert lines[2] == "| 8 | 1024 | 4 on 1 | 64 | bfloat16 | 1000 | 100 | 600 | 0.70 | 2.00% |"
    assert lines[-1] == "Move and flash decode: 0.70 to 0.80 of the stock op's cycles."


@pytest.mark.parametrize("values", [(0, 1, 1, 0.01), (1, -1, 1, 0.01), (1, 1, 0, 0.01), (1, 1, 1, 0.5), (1, 1, 1, 0.0)])
def test_what_cannot_have_been_measured_is_refused(values):
    with pytest.raises(ValueError, match="not measurable"):
        Measured(*values)
