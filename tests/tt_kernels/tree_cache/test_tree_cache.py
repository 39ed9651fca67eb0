# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Writing and committing a tree's keys and values on the simulated N150, bit for bit."""

from __future__ import annotations

import pytest
import torch

from tests.tt_kernels.tree_cache.tree_cache_programs import move_body, sequential_body
from tt_kernels.tree_cache.reference import commit_path_reference, write_nodes_reference

LIMIT_S = 600
pytestmark = pytest.mark.sim

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


@pytest.mark.parametrize("dtype", ["bfloat16", "bfloat8_b"])
@pytest.mark.parametrize("shape, calls", CASES.values(), ids=CASES)
def test_rows_arrive_and_nothing_else_changes(sim_device, shape, calls, dtype):
    """Stored values are compared, so a bfloat8_b row that were rounded again, or took another row's exponents along,
    would differ: rows have scales of their own."""
    users, heads, head_dim, capacity, nodes = shape
    random = torch.Generator().manual_seed(nodes)

    def rows(*size: int) -> torch.Tensor:
        scales = 2.0 ** torch.randint(-12, 12, (*size[:-1], 1), generator=random)
        return (torch.randn(*size, generator=random) * scales).bfloat16()

    cache_rows = [rows(users, heads, capacity, head_dim) for _ in range(2)]
    new_rows = [rows(1, heads, users * nodes, head_dim) for _ in range(2)]
    results, fresh, entries = sim_device("2x1").run(move_body, dtype, cache_rows, new_rows, calls, 4, timeout=LIMIT_S)
    for (prefixes, paths), stages in zip(calls, results, strict=True):
        # A node that does not fit is not written; its step of a path moves nothing.
        kept = [[node for node in path if start + node < capacity] for start, path in zip(prefixes, paths)]
        for before, new, written, committed in zip(stages[0], fresh, *stages[1:], strict=True):
            roomy = torch.cat([before, torch.zeros_like(before)], dim=2)
            expected = write_nodes_reference(roomy, new, prefixes)[:, :, :capacity]
            assert torch.equal(written, expected), prefixes
            expected = commit_path_reference(written, prefixes, kept)
            assert torch.equal(committed, expected), (prefixes, paths)
    assert len(entries) == 1, "prefixes and paths are data: all calls share their programs"


def test_a_committed_path_is_what_the_stock_update_writes_token_by_token(sim_device):
    torch.manual_seed(3)
    start, path = 30, [2, 3, 5]
    cache = torch.randn(1, 2, 64, 64).bfloat16()
    new = torch.randn(1, 2, 6, 64).bfloat16()
    device = sim_device("2x1")
    results, *_ = device.run(move_body, "bfloat16", [cache, cache], [new, new], [([start], [path])], 0, timeout=LIMIT_S)
    expected = device.run(sequential_body, cache, new[:, :, [0, *path]], start, timeout=LIMIT_S)
    end = start + 1 + len(path)
    for committed in results[0][2]:
        assert torch.equal(committed[:, :, :end], expected[:, :, :end])
