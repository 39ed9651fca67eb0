# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Heads of a fused product, split and rotated, on the simulated N150: against float64, and what is refused."""

from __future__ import annotations

import pytest
import torch

from tests.support.run_op import Call, In, Make, refusals, run_ops
from tt_kernels.rotated_heads.reference import rotated_heads_reference

OP, HERE = "tt_kernels.rotated_heads.op:rotated_heads", "tests.tt_kernels.rotated_heads.test_rotated_heads"
# Users, heads, key/value heads, head_dim: parts of a band, of a face and of both; heads in both halves of a tile.
CASES = [(1, 4, 1, 64), (3, 2, 2, 128), (5, 4, 2, 64), (19, 6, 1, 64)]


def shards(columns: int, cores: int, layout: str = "WIDTH_SHARDED", first: int = 0):
    """Return the ttnn.MemoryConfig of [32, columns] on so many cores from the `first` on."""
    import ttnn

    grid = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(first, 0), ttnn.CoreCoord(first + cores - 1, 0))])
    spec = ttnn.ShardSpec(grid, [32, columns], ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(getattr(ttnn.TensorMemoryLayout, layout), ttnn.BufferType.L1, spec)


def memory(*arguments) -> Make:
    return Make(f"{HERE}:shards", *arguments)


def case(users: int, heads: int, kv_heads: int, head_dim: int, **options):
    """Return a call and the float64 results. Keys and values of few users are sharded, queries of one."""
    random = torch.Generator().manual_seed(users)
    fused = torch.randn(1, 1, users, (heads + 2 * kv_heads) * head_dim, generator=random).bfloat16()
    angles = 7 * torch.randn(1, 1, users, head_dim // 2, generator=random).repeat_interleave(2, 3)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    dram, one = Make("ttnn:DRAM_MEMORY_CONFIG"), users == 1
    places = {"q": memory(head_dim, users, "HEIGHT_SHARDED") if one else dram}
    places |= {"k": memory(head_dim, users, "HEIGHT_SHARDED", 3) if users <= 4 else dram, "v": dram}
    places = {f"{part}_memory": place for part, place in places.items()}
    x = In(fused, memory=memory(head_dim, heads + 2 * kv_heads))
    call = Call(OP, x, In(cos), In(sin), heads, kv_heads, **(places | options))
    return call, rotated_heads_reference(fused, cos, sin, heads, kv_heads)


@pytest.mark.sim
def test_heads_are_those_of_float64(sim_device):
    """Rotated numbers to half of the last place, values bit for bit."""
    made = [case(*shape) for shape in CASES]
    found = run_ops(sim_device("8x1"), [call for call, _ in made])
    for shape, result, (_, wanted) in zip(CASES, found, made, strict=True):
        assert torch.equal(result["values"].double(), wanted.values), shape
        for got, right in ((result["queries"], wanted.queries), (result["keys"], wanted.keys)):
            assert got.shape == right.shape
            last_place = 2.0 ** (right.abs().log2().floor() - 7)
            assert ((got.double() - right).abs() <= 0.51 * last_place).all(), shape


@pytest.mark.mock_mesh
def test_what_is_refused_is_named(mock_mesh):
    good, _ = case(*CASES[1])
    fused, cos, sin = good.arguments[:3]
    heads, rest = "2 + 2 x 3 heads of 128 do not fit fused (1, 1, 3, 768) and sin (1, 1, 3, 128)", (2, 2)
    calls = {
        "heads must be 1 to 32, got 0": (fused, cos, sin, 0, 2),
        "kv_heads must be 1 to 32, got 2.0": (fused, cos, sin, 2, 2.0),
        "sin must be a ttnn.Tensor, it is a int": (fused, cos, 3, *rest),
        "cos must be bfloat16 TILE on the device, it is FLOAT32 TILE on the device": (
            fused,
            In(cos.values.float(), "float32"),
            sin,
            *rest,
        ),
        "cos must be interleaved, 3 users of 64 or 128 columns, got (1, 1, 2, 128)": (
            fused,
            In(cos.values[:, :, :2]),
            sin,
            *rest,
        ),
        heads: (fused, cos, sin, 2, 3),
        "fused must be width-sharded in L1, it is INTERLEAVED in DRAM": (In(fused.values), cos, sin, *rest),
        "shards of fused must be [32, 128] row by row, got [32, 256]": (
            In(fused.values, memory=memory(256, 3)),
            cos,
            sin,
            *rest,
        ),
    }
    made = {said: Call(OP, *given, **good.options) for said, given in calls.items()}
    for said, message in refusals(mock_mesh((1, 1)), made).items():
        assert message.startswith(f"UnsupportedError: {said}"), message
