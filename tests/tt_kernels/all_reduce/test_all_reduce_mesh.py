# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""All-reduces over the fabric between simulated chips, against float64."""

from __future__ import annotations

import pytest
import torch

from tests.support.run_op import Make, run_ops
from tests.tt_kernels.all_reduce.calls import HALF_STEP, call_of, check, draw, reduce_of, same_on_all_chips
from tt_kernels.all_reduce import reference

pytestmark = pytest.mark.sim
SHARDS = f"{__name__}:shards"


def shards(cores: int):
    """Return the memory of a row's tiles, one on each of the first `cores` cores, in the worker."""
    import ttnn

    grid = ttnn.num_cores_to_corerangeset(cores, ttnn.CoreCoord(2, 2), row_wise=True)
    spec = ttnn.ShardSpec(grid, [32, 32], ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.L1, spec)


@pytest.mark.parametrize(
    ("users", "columns", "given", "memory"),
    [
        (1, 128, ("residual", "norm"), Make(SHARDS, 4)),
        (1, 96, (), "DRAM"),
        (3, 96, ("residual",), "L1"),
        (16, 128, ("norm",), Make(SHARDS, 4)),
        (17, 96, ("residual", "norm"), "L1"),
        (32, 192, ("residual", "norm"), "DRAM"),  # several packets for a worker
    ],
)
def test_sum_residual_and_norm(sim_mesh, users, columns, given, memory):
    """From one row to whole tiles; two workers with several tiles each, or three with one; interleaved, and in shards
    of which a worker has two."""
    parts, *both = draw(users, 2, users, columns)
    form = {name: tensor for name, tensor in zip(("residual", "norm"), both, strict=True) if name in given}
    (found,) = run_ops(sim_mesh((1, 2), "2x2"), [call_of(reduce_of(users, columns), parts, **form, memory=memory)])
    check(found, parts, **form)


@pytest.mark.parametrize("users", [1, 3])
def test_values_that_cancel_and_those_that_are_no_numbers(sim_mesh, users):
    """Parts of any size whose sum is small. Infinities and NaN reach all chips alike and no other number of the sum.
    The norm of a row with infinities is NaN there and else 0, of one with NaN all NaN; other rows' are as without."""
    generator, columns = torch.Generator().manual_seed(5), 64
    shape = (1, users, columns)
    scale = 2.0 ** torch.randint(-20, 20, shape, generator=generator)
    first = (scale * torch.randn(shape, generator=generator)).bfloat16()
    small = (2.0**-6 * scale * torch.randn(shape, generator=generator)).bfloat16()
    cancelling = torch.stack([first, small - first])
    infinite, _, _ = draw(users, 2, users, columns)
    infinite[0, 0, 0, 1], infinite[1, 0, 0, 40] = -float("inf"), float("inf")
    broken = infinite.clone()
    broken[0, 0, 0, 2] = float("nan")
    broken[0, 0, 0, 3], broken[1, 0, 0, 3] = float("inf"), -float("inf")
    op, norm = reduce_of(users, columns), torch.ones(columns).bfloat16()
    given = [cancelling, infinite, broken]
    whole, *others = run_ops(sim_mesh((1, 2), "2x2"), [call_of(op, parts, norm=norm) for parts in given])
    check(whole, cancelling, norm=norm)
    for parts, found in zip(given[1:], others, strict=True):
        total, normed = reference.all_reduce(list(parts[:, 0]), norm=norm)
        sums, norms = (same_on_all_chips(found[name]).double() for name in ("sum", "normed"))
        torch.testing.assert_close(sums, total, atol=1e-6, rtol=HALF_STEP, equal_nan=True)
        torch.testing.assert_close(norms, normed, atol=1e-6, rtol=1.01 * HALF_STEP, equal_nan=True)


@pytest.mark.parametrize("replays", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_replays_of_a_trace(sim_mesh, replays):
    """Each with its own values, in both slots by turns."""
    op, drawn = reduce_of(1, 64), [draw(seed, 2, 1, 64) for seed in range(replays)]
    calls = [call_of(op, *each) for each in drawn]
    for each, found in zip(drawn, run_ops(sim_mesh((1, 2), "2x1", dispatch="fast"), calls, traced=True), strict=True):
        check(found, *each)


@pytest.mark.parametrize("chips", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_longer_lines(sim_mesh, chips):
    """Those in the middle send both ways."""
    op, drawn = reduce_of(1, 64), [draw(seed, chips, 1, 64) for seed in range(2)]
    results = run_ops(sim_mesh((1, chips), "2x1"), [call_of(op, *each) for each in drawn], timeout=1500)
    for each, found in zip(drawn, results, strict=True):
        check(found, *each)
