# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The gated product on the simulated N150: against float64 and the stock op, and what is refused."""

import pytest
import torch

from tests.support.run_op import Call, In, check_refused, run_ops, shards
from tt_kernels.gated_product.reference import gated_product_reference

OP = "tt_kernels.gated_product.op:gated_product"
CORES, BLOCK = 2, 160  # five tiles on each core: the registers hold four at once
USERS = (1, 5, 19)
# Rows, block and blocks of interleaved tensors, and their memory: some fill their last tile, and cores have parts of
# blocks.
INTERLEAVED = ((1, 96, 2, "L1"), (5, 32, 3, "DRAM"), (32, 32, 5, "L1"), (40, 64, 3, "DRAM"), (64, 160, 2, "DRAM"))


def stock(gate, up):
    """Multiply by the stock op."""
    import ttnn

    return ttnn.mul(gate, up, input_tensor_a_activations=[ttnn.UnaryOpType.SILU])


def rows(count: int, block: int = BLOCK, blocks: int = CORES) -> torch.Tensor:
    """Return gates over all signs and magnitudes, and normal rows to multiply, in blocks."""
    random = torch.Generator().manual_seed(count)
    gate, up = (torch.randn(1, 1, count, blocks, block, generator=random) for _ in range(2))
    gate = (gate * 2.0 ** torch.randint(-6, 6, gate.shape, generator=random)).clamp(min=-75)  # else denormal
    gate[..., 0, :8] = torch.tensor([0.0, -0.0, 80.0, -80.0, 1e30, -1e30, torch.inf, 1e-30])
    up[..., 0, :8] = 1
    return torch.stack((gate, up), -2).flatten(-3).bfloat16()


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
    memory, calls = shards(CORES, 2 * BLOCK), []
    for users in USERS:
        gate, up = rows(users).unflatten(-1, (CORES, 2, BLOCK)).unbind(-2)
        calls.append(Call(OP, In(rows(users), memory=memory), BLOCK, padded=["out"]))
        calls.append(Call(f"{__name__}:stock", In(gate.flatten(-2)), In(up.flatten(-2))))
    found = [result["out"] for result in run_ops(sim_device("2x1"), calls)]
    for users, ours, theirs in zip(USERS, found[::2], found[1::2], strict=True):
        wanted = gated_product_reference(rows(users), BLOCK)
        off = places_off(ours[:, :, :users], wanted)
        assert off <= 0.57 and off <= places_off(theirs, wanted), users
        assert ours.isfinite()[:, :, users:].all() and not ours[:, :, -(-users // 4) * 4 :].any(), users


@pytest.mark.sim
def test_interleaved_tiles_are_dealt_to_all_cores(sim_device):
    calls = [
        Call(OP, In(rows(count, block, blocks), memory=memory), block) for count, block, blocks, memory in INTERLEAVED
    ]
    for (count, block, blocks, _), found in zip(INTERLEAVED, run_ops(sim_device("2x1"), calls), strict=True):
        wanted = gated_product_reference(rows(count, block, blocks), block)
        assert found["out"].shape == wanted.shape and places_off(found["out"], wanted) <= 0.57, (count, block)


@pytest.mark.sim
def test_a_coarse_result_is_rounded_from_bfloat16_to_bfloat8_b(sim_device):
    """Sixteen neighbours share an exponent, by which each has seven bits: half a step off, beside a quarter of one by
    which bfloat16 may be off."""
    x = 4 * torch.randn(1, 1, 40, 3 * 2 * 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    (found,) = run_ops(sim_device("2x1"), [Call(OP, In(x, memory="DRAM"), 64, "bfloat8_b")])
    wanted = gated_product_reference(x, 64)
    off = (found["out"].double() - wanted).unflatten(-1, (-1, 16)).abs()
    step = 2.0 ** (wanted.unflatten(-1, (-1, 16)).abs().amax(-1, keepdim=True).log2().floor() - 6)
    assert found["out"].shape == wanted.shape and (off / step).max() <= 0.76


@pytest.mark.mock_mesh
def test_what_is_refused_is_named(mock_mesh):
    columns, memory = 2 * CORES * BLOCK, shards(CORES, 2 * BLOCK)

    def given(users=3, dtype="bfloat16", **options) -> In:
        return In(torch.zeros(1, 1, users, columns), dtype, **({"memory": memory} | options))

    result = "the result must be bfloat16, of interleaved rows bfloat16 or bfloat8_b, got"
    blocks = "x must be blocks of gate and up, [.., 2 * block], got (1, 1, 3, 640), block"
    calls = {
        "x must be a ttnn.Tensor, it is a int": (3, BLOCK),
        "x has been deallocated": (given(gone=True), BLOCK),
        "x must be bfloat16 TILE on the device, it is BFLOAT8_B TILE": (given(dtype="bfloat8_b"), BLOCK),
        "x must be bfloat16 TILE on the device, it is BFLOAT16 TILE on the host": (given(memory="HOST"), BLOCK),
        f"{blocks} 0": (given(), 0),
        f"{blocks} 48": (given(), 48),
        f"{blocks} 96": (given(), 96),
        f"{blocks} 160.0": (given(), 160.0),
        "shards of x must be [32, 64], a block of gate and one of up, got [32, 320]": (given(), 32),
        "x must be width-sharded in L1, it is HEIGHT_SHARDED in L1": (
            given(memory=shards(1, columns, "HEIGHT_SHARDED")),
            BLOCK,
        ),
        f"{result} 'float32' of interleaved rows": (given(memory="DRAM"), BLOCK, "float32"),
        f"{result} 'bfloat8_b' of sharded rows": (given(), BLOCK, "bfloat8_b"),
    }
    check_refused(mock_mesh((1, 1)), {said: Call(OP, *pair) for said, pair in calls.items()})
