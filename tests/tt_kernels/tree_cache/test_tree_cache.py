# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Writing and committing a tree's keys and values on the simulated N150, bit for bit, and what is refused."""

from dataclasses import replace

import pytest
import torch

from tests.support.run_op import Call, In, run_ops, words
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.tree_cache.op import MAX_CACHES, MAX_NODES, check_caches, check_new, check_path
from tt_kernels.tree_cache.reference import commit_path_reference, write_nodes_reference

WRITE, COMMIT = "tt_kernels.tree_cache.op:write_nodes", "tt_kernels.tree_cache.op:commit_path"
FIRST_COLUMN = 4

# users, kv heads, head_dim, capacity, nodes; then calls: a prefix and a path behind the root for each user. Prefixes at
# every boundary of a tile, a user left out, one whose last nodes do not fit, nodes in an order that is no walk, paths
# of no node, of all nodes in place, backwards, and with a source that an earlier element's row replaces.
CASES = {
    "one user": (
        (1, 1, 64, 96, 6),
        [([0], [[2, 5]]), ([31], [[]]), ([32], [[1, 2, 3, 4, 5]]), ([29], [[5, 4, 3, 2, 1]]), ([90], [[3, 4]])],
    ),
    "three users": (
        (3, 2, 128, 64, 20),
        [
            ([5, -1, 31], [[2, 1, 3], [4], [19, 18]]),
            ([44, 33, 12], [[19], [3, 7, 12, 19], [1, 3]]),
            ([60, 63, 0], [[1, 3], [2], list(range(19, 0, -1))]),
        ],
    ),
    "two tiles of nodes": ((1, 1, 64, 128, 40), [([30], [[3, 33, 37, 39]]), ([61], [[32, 31, 36]])]),
}


@pytest.mark.sim
@pytest.mark.parametrize("dtype", ["bfloat16", "bfloat8_b"])
def test_rows_arrive_and_nothing_else_changes(sim_device, dtype):
    """Stored values are compared, so a bfloat8_b row that were rounded again, or took another row's exponents along,
    would differ: rows have scales of their own."""
    calls, expected = [], []
    for (users, heads, head_dim, capacity, nodes), steps in CASES.values():
        random = torch.Generator().manual_seed(nodes)

        def rows(*size: int, random=random) -> torch.Tensor:
            scales = 2.0 ** torch.randint(-12, 12, (*size[:-1], 1), generator=random)
            return (torch.randn(*size, generator=random) * scales).bfloat16()

        old = [rows(users, heads, capacity, head_dim) for _ in range(2)]
        new = [In(rows(1, heads, users * nodes, head_dim), dtype, read=f"new {part}") for part in (0, 1)]
        for prefixes, paths in steps:
            caches = [In(part, dtype, read=f"cache {index}") for index, part in enumerate(old)]
            at = words(prefixes)
            # As a tree attention's tensors hold paths, behind other columns.
            path = words([[99] * FIRST_COLUMN + path + [-1] * (nodes - len(path)) for path in paths])
            calls += [
                Call("tests.support.run_op:nothing", caches),
                Call(WRITE, *caches, *new, at, nodes),
                Call(COMMIT, caches, at, path, nodes, first_column=FIRST_COLUMN),
            ]
            expected.append((prefixes, paths, capacity))
    results = run_ops(sim_device("2x1"), calls)
    for index, (prefixes, paths, capacity) in enumerate(expected):
        before, written, committed = results[3 * index : 3 * index + 3]
        # A node that does not fit is not written; its step of a path moves nothing.
        kept = [[node for node in path if start + node < capacity] for start, path in zip(prefixes, paths, strict=True)]
        for part in (0, 1):
            stored = before[f"cache {part}"]
            roomy = torch.cat([stored, torch.zeros_like(stored)], dim=2)
            right = write_nodes_reference(roomy, written[f"new {part}"], prefixes)[:, :, :capacity]
            assert torch.equal(written[f"cache {part}"], right), prefixes
            right = commit_path_reference(right, prefixes, kept)
            assert torch.equal(committed[f"cache {part}"], right), (prefixes, paths)
        if index and capacity == expected[index - 1][2]:
            assert committed["entries"] == results[3 * index - 1]["entries"], "prefixes and paths are data"


# ------------------------------------------------------------------------------ what is refused

CACHE = TensorFacts((2, 4, 64, 128), "BFLOAT8_B")
PREFIX = TensorFacts((2,), "INT32", "ROW_MAJOR")
NEW = TensorFacts((1, 4, 2 * 6, 128), "BFLOAT8_B")
PATH = TensorFacts((2, 16), "INT32", "ROW_MAJOR")


PROBLEM = check_caches({"keys": CACHE, "values": CACHE}, 6, PREFIX)
CACHES_REFUSED = [
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
]
NEW_REFUSED = [
    (replace(NEW, dtype="BFLOAT16"), "BFLOAT16"),
    (replace(NEW, shape=(1, 4, 11, 128)), "11"),
    (replace(NEW, interleaved=False), "interleaved"),
]
PATHS_REFUSED = [
    (PATH, 11, "16 columns, 6 from column 11"),
    (PATH, -1, "from -1"),
    (replace(PATH, shape=(16,)), 0, r"\(16,\)"),
    (replace(PATH, shape=(3, 16)), 0, r"\(3, 16\)"),
    (replace(PATH, layout="TILE"), 0, "TILE"),
]


def test_what_is_wrong_is_named():
    for *given, text in CACHES_REFUSED:
        with pytest.raises(UnsupportedError, match=text):
            check_caches(*given)
    for new, text in NEW_REFUSED:
        with pytest.raises(UnsupportedError, match=text):
            check_new("keys", new, PROBLEM, CACHE.dtype)
    for path, first, text in PATHS_REFUSED:
        with pytest.raises(UnsupportedError, match=text):
            check_path(path, PROBLEM, first)
