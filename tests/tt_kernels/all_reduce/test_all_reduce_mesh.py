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


@pytest.mark.parametrize("users", [1, 3, 17])
def test_sum_residual_and_norm(sim_mesh, users):
    """From one row to whole tiles; three workers, of which each has several tiles, or one where three divides them;
    interleaved, and in shards of which a worker has two."""
    worker = sim_mesh((1, 2), "2x2")
    calls, drawn = [], []
    for columns in (128, 96):
        parts, residual, norm = draw(users, 2, users, columns)
        both = {"residual": residual, "norm": norm}
        forms = [({}, "DRAM"), ({"residual": residual}, "DRAM"), ({"norm": norm}, "L1"), (both, Make(SHARDS, 4))]
        op = reduce_of(users, columns)
        for form, memory in [(both, "L1")] if columns == 96 else forms:
            calls.append(call_of(op, parts, **form, memory=memory))
            drawn.append((parts, form))
    for (parts, form), found in zip(drawn, run_ops(worker, calls, timeout=300), strict=True):
        check(found, parts, **form)


@pytest.mark.parametrize("users", [1])
def test_values_that_cancel_and_those_that_are_no_numbers(sim_mesh, users):
    """Parts of any size whose sum is small; and infinities and NaN, which reach all chips alike and no other column of
    the sum."""
    generator, columns = torch.Generator().manual_seed(5), 64
    shape = (1, users, columns)
    scale = 2.0 ** torch.randint(-20, 20, shape, generator=generator)
    first = (scale * torch.randn(shape, generator=generator)).bfloat16()
    small = (2.0**-6 * scale * torch.randn(shape, generator=generator)).bfloat16()
    cancelling = torch.stack([first, small - first])
    broken, _, _ = draw(users, 2, users, columns)
    places = {1: float("inf"), 2: -float("inf"), 40: float("nan")}
    for place, value in places.items():
        broken[place % 2, 0, 0, place] = value
    broken[0, 0, 0, 3], broken[1, 0, 0, 3] = float("inf"), -float("inf")
    op, norm = reduce_of(users, columns), torch.ones(columns).bfloat16()
    whole, found = run_ops(
        sim_mesh((1, 2), "2x2"), [call_of(op, cancelling), call_of(op, broken, norm=norm)], timeout=300
    )
    check(whole, cancelling)
    total, _ = reference.all_reduce(list(broken[:, 0]))
    sums, normed = same_on_all_chips(found["sum"]), same_on_all_chips(found["normed"])
    finite = total.isfinite()
    torch.testing.assert_close(sums[finite].double(), total[finite], atol=1e-6, rtol=HALF_STEP)
    # Packing makes an infinity of NaN.
    assert not sums[~finite].isfinite().any() and not normed[~finite].isfinite().any() and (~finite).sum() == 4
    _, right = reference.all_reduce([part[0, 1:] for part in broken], norm=norm)
    torch.testing.assert_close(normed[1:].double(), right, atol=1e-3, rtol=1.5 * HALF_STEP)


def test_four_chips(sim_mesh):
    """Those in the middle send both ways."""
    op, drawn = reduce_of(1, 64), [draw(seed, 4, 1, 64) for seed in range(2)]
    results = run_ops(sim_mesh((1, 4), "2x1"), [call_of(op, *each) for each in drawn], timeout=500)
    for each, found in zip(drawn, results, strict=True):
        check(found, *each)
