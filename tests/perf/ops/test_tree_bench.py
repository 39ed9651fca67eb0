# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What bench_tree_attention says beside cycles: its trees, bytes of masks, and how points stand to targets."""

from __future__ import annotations

import pytest

from perf.ops.bench_tree_attention import (
    KEY_CHUNK,
    LONG_POINTS,
    POINTS,
    SHAPES,
    Cycles,
    Point,
    intervals_of,
    parents_of,
    report,
)
from tt_kernels.tree_attention.checks import check_intervals
from tt_kernels.tree_attention.reference import path_of


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nodes", [1, 2, 4, 7, 16, 64])
def test_trees_of_the_bench_are_walks_of_their_shape(shape, nodes):
    parents = parents_of(shape, nodes)
    check_intervals(*intervals_of(parents))
    deepest = max(len(path_of(parents, node)) for node in range(nodes))
    assert deepest == {"chain": nodes, "balanced": nodes.bit_length(), "skewed": nodes // 2 + 1}[shape]


def test_points_suit_the_stock_op():
    assert set(POINTS) <= set(LONG_POINTS)
    assert all(point.context % KEY_CHUNK == 0 and point.prefix > 0 for point in LONG_POINTS)
    with pytest.raises(ValueError, match="shape must be one of chain, balanced, skewed, got 'bush'"):
        parents_of("bush", 4)


def test_the_report_compares_cycles_and_bytes():
    results = [
        (Point(2048, 16), Cycles(tree=300, chain=300, stock=400, decode=150, speculating=330)),
        (Point(256, 64, workers=4), Cycles(tree=640, chain=600, stock=None, decode=100)),
    ]
    text = report(results)
    assert (
        "| 2048 | 16 | balanced | 1 | 300 | 1.000 | 400 | 0.75 | 150 | 2.00 | 0.12 | 330 | 1.100 | 128 | 262144 |"
        in text
    )
    assert "With a guess: 16 nodes at 2048, 1 worker(s): 1.100x the tree (target 1.06x: missed)." in text
    assert "| 256 | 64 | balanced | 4 | 640 | 1.067 | - | - | 100 | 6.40 | 0.10 | - | - | 512 | 131072 |" in text
    assert "at most 0.75x its cycles (target 1x: met)" in text
    assert "16 nodes at 2048, 1 worker(s): 2.00x a plain decode (target 1.5x: missed)" in text
    with pytest.raises(ValueError, match="not measurable"):
        Cycles(0, 1, None, 1)
