# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the tree's cache ops refuse, without ttnn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.tree_cache.checks import MAX_CACHES, MAX_NODES, check_caches, check_new, check_path

CACHE = TensorFacts((2, 4, 64, 128), "BFLOAT8_B")
PREFIX = TensorFacts((2,), "INT32", "ROW_MAJOR")
NEW = TensorFacts((1, 4, 2 * 6, 128), "BFLOAT8_B")
PATH = TensorFacts((2, 16), "INT32", "ROW_MAJOR")


def problem(nodes: int = 6):
    return check_caches({"keys": CACHE, "values": CACHE}, nodes, PREFIX)


def test_what_is_right_is_taken():
    found = problem()
    check_new("keys", NEW, found, CACHE.dtype)
    check_path(PATH, found, 10)
    assert (found.jobs, found.max_tiles, found.block_float) == (2 * 2 * 4 * 4, 2, True)


@pytest.mark.parametrize("nodes, tiles", [(1, 1), (2, 2), (32, 2), (33, 2), (34, 3), (64, 3)])
def test_a_tree_may_begin_at_any_row_of_a_tile(nodes, tiles):
    assert problem(nodes).max_tiles == tiles
    assert tiles == max((start + nodes - 1) // 32 + 1 for start in range(32))


@pytest.mark.parametrize(
    "caches, nodes, prefix, words",
    [
        ({}, 6, PREFIX, "there are 0"),
        ({str(i): CACHE for i in range(MAX_CACHES + 1)}, 6, PREFIX, f"there are {MAX_CACHES + 1}"),
        ({"k": replace(CACHE, layout="ROW_MAJOR")}, 6, PREFIX, "k must be .*ROW_MAJOR"),
        ({"k": replace(CACHE, on_device=False)}, 6, PREFIX, "k must be"),
        ({"k": replace(CACHE, interleaved=False)}, 6, PREFIX, "k must be"),
        ({"k": CACHE, "v": replace(CACHE, dtype="BFLOAT16")}, 6, PREFIX, "alike: k is BFLOAT8_B.*v is BFLOAT16"),
        ({"k": CACHE, "v": replace(CACHE, shape=(2, 4, 96, 128))}, 6, PREFIX, "alike.*96"),
        ({"k": replace(CACHE, dtype="FLOAT32")}, 6, PREFIX, "they are FLOAT32"),
        ({"k": replace(CACHE, shape=(2, 4, 48, 128))}, 6, PREFIX, "48"),
        ({"k": replace(CACHE, shape=(2, 4, 64))}, 6, PREFIX, r"\(2, 4, 64\)"),
        ({"k": CACHE}, 0, PREFIX, "got 0"),
        ({"k": CACHE}, MAX_NODES + 1, PREFIX, str(MAX_NODES + 1)),
        ({"k": CACHE}, 2.0, PREFIX, "got 2.0"),
        ({"k": CACHE}, 65, PREFIX, "65 nodes do not fit caches of 64"),
        ({"k": CACHE}, 6, replace(PREFIX, shape=(3,)), r"\(2,\).*\(3,\)"),
        ({"k": CACHE}, 6, replace(PREFIX, dtype="UINT32"), "UINT32"),
    ],
)
def test_what_is_wrong_is_named(caches, nodes, prefix, words):
    with pytest.raises(UnsupportedError, match=words):
        check_caches(caches, nodes, prefix)


@pytest.mark.parametrize(
    "new, words",
    [
        (replace(NEW, dtype="BFLOAT16"), "BFLOAT16"),
        (replace(NEW, shape=(1, 4, 11, 128)), "11"),
        (replace(NEW, interleaved=False), "interleaved"),
    ],
)
def test_new_rows_must_be_as_the_cache_stores_them(new, words):
    with pytest.raises(UnsupportedError, match=words):
        check_new("keys", new, problem(), CACHE.dtype)


@pytest.mark.parametrize(
    "path, first, words",
    [
        (PATH, 11, "16 columns, 6 from column 11"),
        (PATH, -1, "from -1"),
        (replace(PATH, shape=(16,)), 0, r"\(16,\)"),
        (replace(PATH, shape=(3, 16)), 0, r"\(3, 16\)"),
        (replace(PATH, layout="TILE"), 0, "TILE"),
    ],
)
def test_a_path_needs_a_column_for_every_node(path, first, words):
    with pytest.raises(UnsupportedError, match=words):
        check_path(path, problem(), first)
