# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The gated product on the simulated N150: against float64 and the stock op, and what is refused."""

from __future__ import annotations

import pytest
import torch

from runtime_patches import sgdc
from tests.support.run_op import Call, In, Make, priorities, refusals, run_ops
from tt_kernels.common.priority import HOLDS_EXACT, YIELDED
from tt_kernels.gated_product.reference import gated_product_reference

OP = "tt_kernels.gated_product.op:gated_product"
HERE = "tests.tt_kernels.gated_product.test_gated_product"
CORES, COLUMNS = 2, 160  # five tiles on each core: the registers hold four at once
USERS = (1, 5, 19)


def shards(columns: int = COLUMNS, cores: int = CORES, layout: str = "WIDTH_SHARDED"):
    """Return the ttnn.MemoryConfig of [32, columns] on each of the first cores."""
    import ttnn

    grid = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(cores - 1, 0))])
    spec = ttnn.ShardSpec(grid, [32, columns], ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(getattr(ttnn.TensorMemoryLayout, layout), ttnn.BufferType.L1, spec)


def stock(gate, up):
    """Multiply by the stock op."""
    import ttnn

    silu = [ttnn.UnaryOpType.SILU]
    return ttnn.mul(gate, up, input_tensor_a_activations=silu, memory_config=gate.memory_config())


def rows(users: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return gates over all signs and magnitudes, and normal rows to multiply."""
    random = torch.Generator().manual_seed(users)
    gate, up = (torch.randn(1, 1, users, CORES * COLUMNS, generator=random) for _ in range(2))
    gate = (gate * 2.0 ** torch.randint(-6, 6, gate.shape, generator=random)).clamp(min=-75)  # else denormal
    gate[..., :8] = torch.tensor([0.0, -0.0, 80.0, -80.0, 1e30, -1e30, torch.inf, 1e-30])
    up[..., :8] = 1
    return gate.bfloat16(), up.bfloat16()


def places_off(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest error in units of the last place of bfloat16 numbers that are not denormal."""
    known = expected.isfinite()
    assert torch.equal(found[~known].double(), expected[~known])
    last_place = 2.0 ** (expected[known].abs().log2().floor().clamp(min=-126) - 7)
    return ((found[known].double() - expected[known]).abs() / last_place).max().item()


@pytest.mark.sim
def test_rows_of_users_are_closer_to_float64_than_the_stock_op(sim_device):
    """Parts of a band of four rows, of a face, and of both. The padding that follows is gate's, or in
    the last users' band a product too."""
    memory, calls, expected = Make(f"{HERE}:shards"), [], []
    for users in USERS:
        values = rows(users)
        inputs = [In(part, memory=memory) for part in values]
        calls += [Call(OP, *inputs, padded=["out"]), Call(f"{HERE}:stock", *inputs)]
        expected.append((users, values[0], gated_product_reference(*values)))
    found = [result["out"] for result in run_ops(sim_device("2x1"), calls)]
    for (users, gate, wanted), ours, theirs in zip(expected, found[::2], found[1::2], strict=True):
        off = places_off(ours[:, :, :users], wanted)
        assert off <= 0.51 and off <= places_off(theirs, wanted), users
        assert ours.isfinite()[:, :, users:].all() and not ours[:, :, -(-users // 4) * 4 :].any(), users


@pytest.mark.sim
def test_one_trace_takes_new_rows_and_is_skipped_by_the_gate(sim_device):
    """A skipped replay leaves what the last one made."""
    memory, steps = Make(f"{HERE}:shards"), [(1, HOLDS_EXACT), (2, YIELDED), (3, HOLDS_EXACT)]
    given = [[part[:, :, -1:] for part in rows(seed)] for seed, _ in steps]
    calls = [
        Call("tests.support.run_op:gated", priorities(role, None), OP, *(In(part, memory=memory) for part in inputs))
        for (_, role), inputs in zip(steps, given, strict=True)
    ]
    device = sim_device("2x1", dispatch="fast", overlays=sgdc.overlays())
    found = [result["out"] for result in run_ops(device, calls, traced=True)]
    for step, source in ((0, 0), (1, 0), (2, 2)):
        assert places_off(found[step], gated_product_reference(*given[source])) <= 0.51, step


@pytest.mark.mock_mesh
def test_what_is_refused_is_named(mock_mesh):
    zeros, memory = torch.zeros(1, 1, 3, CORES * COLUMNS), Make(f"{HERE}:shards")

    def given(values=zeros, dtype="bfloat16", **options) -> In:
        return In(values, dtype, **({"memory": memory} | options))

    good = given()
    narrow = given(zeros[..., :128], memory=Make(f"{HERE}:shards", 64))
    calls = {
        "up must be a ttnn.Tensor, it is a int": (good, 3),
        "gate has been deallocated": (given(gone=True), good),
        "up must be bfloat16 TILE on the device, it is BFLOAT8_B TILE": (good, given(dtype="bfloat8_b")),
        "gate must be bfloat16 TILE on the device, it is BFLOAT16 TILE on the host": (given(memory="HOST"), good),
        "gate must have 1 to 32 users, got (1, 1, 33, 320)": (
            In(torch.zeros(1, 1, 33, CORES * COLUMNS), memory="L1"),
            good,
        ),
        "gate must be width-sharded in L1, it is INTERLEAVED in DRAM": (given(memory="DRAM"), good),
        "gate and up must have one shape and the same shards: (1, 1, 3, 320) in 2 shards of [32, 160]": (good, narrow),
    }
    found = refusals(mock_mesh((1, 1)), {said: Call(OP, *pair) for said, pair in calls.items()})
    for said, message in found.items():
        assert message.startswith(f"UnsupportedError: {said}"), message
