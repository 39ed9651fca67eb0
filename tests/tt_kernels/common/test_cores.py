# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sets of cores: few ranges for programs, the order of the cores for tensors' shards."""

import pytest

pytestmark = pytest.mark.mock_mesh

WORKERS = [(x, y) for y in range(8) for x in range(8)][:62]
PAIR = [(5, 0), (0, 1)]


def ranges(mesh, cores) -> dict[str, list]:
    """Return the cores of each range of both sets, and those of the first one row by row."""
    from tt_kernels.common.cores import core_list, core_set, single_cores

    def listed(found) -> list[tuple[int, int, int, int]]:
        return [(part.start.x, part.start.y, part.end.x, part.end.y) for part in found.ranges()]

    merged = core_set(*cores)
    return {"merged": listed(merged), "in order": listed(single_cores(*cores)), "cores": core_list(merged)}


def test_a_programs_cores_are_few_ranges_and_a_shards_are_in_order(mock_mesh):
    found = mock_mesh((1, 2)).run(ranges, WORKERS)
    assert found["merged"] == [(0, 0, 7, 6), (0, 7, 5, 7)] and found["cores"] == WORKERS
    found = mock_mesh((1, 2)).run(ranges, PAIR)
    assert found["in order"] == [(5, 0, 5, 0), (0, 1, 0, 1)]
    assert sorted(found["merged"]) == sorted(found["in order"]) and found["cores"] == PAIR
