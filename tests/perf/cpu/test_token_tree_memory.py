# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The memory benchmark's figures, against the arithmetic of the paper's section 6.1."""

import json

from models.llama31_8b.spec_decode.tree import TokenTree
from perf.cpu import bench_tree_memory


def test_figures_of_the_paper(capsys):
    """4096 nodes: 2 x 4096 integers a sequence. Two sequences here; the paper's 128 are 64 times that: 32
    Mbit against 2 Gbit."""
    assert bench_tree_memory.main(["--nodes", "4096", "--batch", "2", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["integers_per_sequence"] == 2 * 4096
    assert row["interval_bytes"] * 64 * 8 == 32 * 2**20 and row["dense_bytes"] * 64 * 8 == 2 * 2**30
    assert row["differing_bits"] == 0 and row["largest_mask_block_bytes"] == 256 * 4096


def test_the_comparison_can_fail():
    parents = bench_tree_memory.random_parents(300, 1)
    wrong = bench_tree_memory.dense_bits([-1] * 300)
    assert bench_tree_memory.differing_bits(TokenTree.from_parents(parents), wrong) > 0
