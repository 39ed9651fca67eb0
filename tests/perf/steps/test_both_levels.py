# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the bench says of both levels of speculation together, on steps written by hand."""

from __future__ import annotations

import pytest

from perf.steps import both_levels

SHAPE = {"layers": 1, "hidden": 64, "intermediate": 96, "context": 512, "chunk_size": 64, "workers": 1}


def step(length: int, **more) -> dict:
    return {"chips": [[{"start": 100, "end": 100 + length}], [{"start": 50, "end": 100 + length}]], **more}


def test_gains_multiply_where_a_pair_shortens_both_steps_alike() -> None:
    """The pair halves a token's step, and takes a tree's of 120 to 80: two thirds of the product."""
    tokens = {"exact": step(100), "0": step(150), "1": step(0)}
    trees = {"exact": step(120), "1": step(30)}
    (row,) = both_levels.rows(tokens, trees, SHAPE, 16)
    assert (row["plain"], row["pair"], row["trees"], row["both"]) == (100, 50, 120, 80)
    assert row["gain_of_pair"] == 2 and row["gain_of_trees"] == pytest.approx(100 / 120)
    assert row["gain_of_both"] == 1.25
    assert row["share_of_product"] == pytest.approx(1.25 / (2 * 100 / 120)) == 0.75
    assert row["hit_rate"] == 1 and row["nodes"] == 16 and row["context"] == 512
    assert both_levels.report([row]).splitlines()[-1].split() == "100% 100 50 120 80 2.00x 0.83x 1.25x 0.75".split()
