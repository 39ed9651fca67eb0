# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stock collectives on two chips against torch."""

from __future__ import annotations

import pytest
import torch

from tests.simulated_n150.mesh.mesh_programs import collective_body

GRID = "4x2"  # with two links reduce_scatter wants eight cores
DRAM, L1 = "DRAM_MEMORY_CONFIG", "L1_MEMORY_CONFIG"


def expected(name, parts):
    """What each chip holds, of the parts each had."""
    if name == "all_gather":
        return [torch.cat(parts, 3)] * 2
    total = parts[0] + parts[1]
    if name == "all_reduce":
        return [total] * 2
    if name == "reduce_scatter":
        return list(total.chunk(2, 3))
    if name == "broadcast":
        return [parts[1]] * 2
    return [None, parts[0]]  # point_to_point from chip 0 to chip 1


ARGUMENTS = {
    "all_gather": {"dim": 3, "cluster_axis": 1},
    "reduce_scatter": {"dim": 3, "cluster_axis": 1},
    "all_reduce": {"cluster_axis": 1},
    "broadcast": {"sender_coord": (0, 1), "cluster_axis": 1},
    "point_to_point": {"sender_coord": (0, 0), "receiver_coord": (0, 1)},
}


@pytest.mark.sim
@pytest.mark.parametrize(
    ("name", "dtype", "memory"),
    [
        *((name, "bfloat16", DRAM) for name in ARGUMENTS),
        ("all_gather", "bfloat8_b", L1),
        ("reduce_scatter", "bfloat8_b", DRAM),
    ],
)
def test_collective(sim_mesh, name, dtype, memory):
    # Whole numbers up to 16: sums are exact in both formats.
    x = torch.randint(-8, 9, (2, 1, 32, 128), generator=torch.Generator().manual_seed(3)).float()
    held = sim_mesh((1, 2), GRID).run(collective_body, name, x, dtype, memory, ARGUMENTS[name])
    for found, right in zip(held, expected(name, list(x.split(1))), strict=True):
        if right is not None:
            assert torch.equal(found.float(), right)
