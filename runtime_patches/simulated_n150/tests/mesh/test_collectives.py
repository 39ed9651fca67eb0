# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stock collectives on two and four chips against torch."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from runtime_patches.simulated_n150.tests.mesh.mesh_programs import collective_body

GRID = "4x2"  # with two links reduce_scatter needs eight cores
DRAM, L1, SHARDED = "DRAM_MEMORY_CONFIG", "L1_MEMORY_CONFIG", "sharded"
FLAT, TALL = (32, 128), (64, 256)  # a row of four tiles; two rows of eight


def expected(name, parts, axis_chips=2):
    """What each chip of an axis holds, of the parts each had."""
    if name.startswith("all_gather"):
        return [torch.cat(parts, 3)] * axis_chips
    total = sum(parts)
    if name.startswith("all_reduce"):
        return [total] * axis_chips
    if name.startswith("reduce_scatter"):
        return list(total.chunk(axis_chips, 3))
    if name == "broadcast":
        return [parts[1]] * axis_chips
    return [None, parts[0]]  # point_to_point from chip 0 to chip 1


ARGUMENTS = {
    "all_gather": {"dim": 3, "cluster_axis": 1},
    "reduce_scatter": {"dim": 3, "cluster_axis": 1},
    "all_reduce": {"cluster_axis": 1},
    "broadcast": {"sender_coord": (0, 1), "cluster_axis": 1},
    "point_to_point": {"sender_coord": (0, 0), "receiver_coord": (0, 1)},
    "all_gather_async": {"dim": 3, "cluster_axis": 1},
    "reduce_scatter_minimal_async": {"dim": 3, "cluster_axis": 1},
    "all_reduce_async": {"cluster_axis": 1},
}


def whole_numbers(chips, shape):
    """Up to 8, of which sums are exact in both formats."""
    return torch.randint(-8, 9, (chips, 1, *shape), generator=torch.Generator().manual_seed(3)).float()


@pytest.mark.sim
@pytest.mark.parametrize(
    ("name", "dtype", "memory", "shape"),
    [
        *((name, "bfloat16", DRAM, FLAT) for name in ARGUMENTS if not name.endswith("async")),
        ("all_gather", "bfloat8_b", L1, FLAT),
        ("all_reduce", "bfloat8_b", DRAM, FLAT),
        ("reduce_scatter", "bfloat16", DRAM, TALL),
        ("all_gather", "bfloat16", SHARDED, FLAT),
        ("reduce_scatter", "bfloat16", SHARDED, FLAT),
        # The forms that those call, or other data through the same kernels.
        *(pytest.param(name, "bfloat16", DRAM, FLAT, marks=pytest.mark.slow) for name in ARGUMENTS if "async" in name),
        pytest.param("reduce_scatter", "bfloat8_b", DRAM, FLAT, marks=pytest.mark.slow),
        pytest.param("all_gather", "bfloat16", DRAM, TALL, marks=pytest.mark.slow),
        pytest.param("all_reduce", "bfloat16", SHARDED, FLAT, marks=pytest.mark.slow),
    ],
)
def test_collective(sim_mesh, name, dtype, memory, shape):
    x = whole_numbers(2, shape)
    held = sim_mesh((1, 2), GRID).run(collective_body, name, x, dtype, memory, ARGUMENTS[name])
    for found, right in zip(held, expected(name, list(x.split(1))), strict=True):
        if right is not None:
            assert torch.equal(found.float(), right)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
def test_collective_along_each_axis_of_four_chips(sim_mesh, name, axis):
    x = whole_numbers(4, FLAT)
    held = sim_mesh((2, 2), GRID).run(collective_body, name, x, "bfloat16", DRAM, {"dim": 3, "cluster_axis": axis})
    parts = list(x.split(1))  # of the chips row by row
    for group in ([0, 2], [1, 3]) if axis == 0 else ([0, 1], [2, 3]):
        for chip, right in zip(group, expected(name, [parts[chip] for chip in group]), strict=True):
            assert torch.equal(held[chip].float(), right), f"chip {chip}"


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 4), (1, 8)], ids=["2x4", "1x8"])
def test_rows_of_eight_boards(sim_mesh, shape):
    """All routers run; every row gathers what its boards have."""
    rows, columns = shape
    x = whole_numbers(rows * columns, FLAT)
    held = sim_mesh(shape).run(collective_body, "all_gather", x, "bfloat16", DRAM, {"dim": 3, "cluster_axis": 1})
    parts = list(x.split(1))
    for chip, found in enumerate(held):
        first = chip // columns * columns
        assert torch.equal(found.float(), torch.cat(parts[first : first + columns], 3)), f"chip {chip}"


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize(("name", "grid"), [("all_gather", "1x1"), ("reduce_scatter", GRID)])
def test_a_ring_of_four_boards(sim_mesh, name, grid):
    """Two rows of two as one ring: every cable of it carries packets both ways, the one from the last chip to the
    first too."""
    x = whole_numbers(4, FLAT)
    worker = sim_mesh((2, 2), grid, fabric="FABRIC_1D_RING", opened_as=(1, 4))
    before = sent_by_boards(worker)
    held = worker.run(collective_body, name, x, "bfloat16", DRAM, {"dim": 3, "cluster_axis": 1})
    after = sent_by_boards(worker)
    for chip, (found, right) in enumerate(zip(held, expected(name, list(x.split(1)), 4), strict=True)):
        assert torch.equal(found.float(), right), f"chip {chip}"
    ring = {(0, 1), (1, 3), (3, 2), (2, 0)}
    assert {pair for pair in after if after[pair] > before[pair]} == ring | {pair[::-1] for pair in ring}


def sent_by_boards(worker):
    """Packets sent so far from each board to each of its neighbours."""
    sent = Counter()
    for state in worker.links.states():
        source, target = (int(place.split()[1]) for place in (state.source, state.target))
        sent[source, target] += state.sent
    return sent
