# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Heads of a fused product, split, rotated and cached, on the simulated N150: against float64, and what is refused."""

import pytest
import torch

from runtime_patches import sgdc
from tests.support.run_op import Call, In, Make, check_refused, priorities, run_ops, shards, words
from tt_kernels.common.priority import HOLDS_EXACT, YIELDED
from tt_kernels.rotated_heads.reference import rotated_heads_reference

# Users, heads, key/value heads, head_dim: parts of a band, of a face and of both; heads in both halves of a tile.
CASES = [(1, 4, 1, 64), (3, 2, 2, 128), (5, 4, 2, 64), (19, 6, 1, 64)]
OP = "tt_kernels.rotated_heads.op:cached_heads"
CAPACITY, BLOCK = 96, 32
# Of CASES: a cache's dtype, whether it is paged, and a position for each user: both halves of a tile, the first and the
# last row, users left out, one past the capacity.
STORES = [
    (0, "bfloat8_b", True, [45]),
    (1, "bfloat16", True, [95, -1, 31]),
    (2, "bfloat8_b", False, [0, 17, 95, -1, CAPACITY]),
    (3, "bfloat8_b", False, list(range(0, 95, 5))),
]


def case(users: int, heads: int, kv_heads: int, head_dim: int, seed: int | None = None, **options):
    """Return a call that caches at position 0 of a bfloat16 cache of zeros, and the float64 results. Queries of one
    user are sharded."""
    random = torch.Generator().manual_seed(users if seed is None else seed)
    fused = torch.randn(1, 1, users, (heads + 2 * kv_heads) * head_dim, generator=random).bfloat16()
    angles = 7 * torch.randn(1, 1, users, head_dim // 2, generator=random).repeat_interleave(2, 3)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    q_memory = shards(users, head_dim, "HEIGHT_SHARDED") if users == 1 else Make("ttnn:DRAM_MEMORY_CONFIG")
    x = In(fused, memory=shards(heads + 2 * kv_heads, head_dim))
    caches = [In(torch.zeros(users, kv_heads, 32, head_dim), read=part) for part in ("keys", "values")]
    given = (x, *(In(angles, layout="ROW_MAJOR") for angles in (cos, sin)), heads, kv_heads)
    call = Call(OP, *given, *caches, words([0] * users), **({"q_memory": q_memory} | options))
    return call, rotated_heads_reference(fused, cos, sin, heads, kv_heads)


def block_floats(rows: torch.Tensor) -> torch.Tensor:
    """Return bfloat16 numbers as a packer makes bfloat8_b of them: each to 7 bits, then to the unit of 16 in
    succession, ties away from zero."""

    def rounded(values: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
        unit = 2.0 ** (largest.log2().floor() - 6)
        return values.sign() * (values.abs() / unit + 0.5).floor() * unit

    blocks = rows.double().unflatten(-1, (-1, 16))
    blocks = rounded(blocks, blocks.abs())
    return rounded(blocks, blocks.abs().amax(-1, keepdim=True)).flatten(-2).to(rows.dtype)


@pytest.mark.sim
def test_heads_are_those_of_float64_and_change_their_rows_of_the_cache_alone(sim_device):
    """Rotated numbers to half of the last place, values bit for bit; cached rows as a packer makes them."""
    calls, cases = [], []
    for number, dtype, paged, positions in STORES:
        users, heads, kv_heads, head_dim = CASES[number]
        plain, wanted = case(*CASES[number])
        random = torch.Generator().manual_seed(users)
        per_user = CAPACITY // BLOCK
        blocks = torch.randperm(users * per_user, generator=random).view(users, per_user)
        shape = (users * per_user, kv_heads, BLOCK, head_dim) if paged else (users, kv_heads, CAPACITY, head_dim)
        scales = 2.0 ** torch.randint(-12, 12, (*shape[:-1], 1), generator=random)
        caches = [In(torch.randn(shape, generator=random) * scales, dtype, read=part) for part in ("keys", "values")]
        q_memory = plain.options["q_memory"]
        table = {"page_table": words(blocks)} if paged else {}
        calls += [
            Call("tests.support.run_op:nothing", caches),
            plain,
            Call(OP, *plain.arguments[:5], *caches, words(positions), q_memory=q_memory, **table),
        ]
        cases.append((wanted, dtype, positions, blocks if paged else None))
    results = run_ops(sim_device("8x1"), calls)
    for index, (wanted, dtype, positions, blocks) in enumerate(cases):
        before, heads, after = results[3 * index : 3 * index + 3]
        # Rows [1, users, kv_heads, head_dim], as the results have them.
        rows = {part: heads[part][:, :, 0][None] for part in ("keys", "values")}
        assert torch.equal(rows["values"].double(), wanted.values), index
        for got, exact in ((heads["out"], wanted.queries), (rows["keys"], wanted.keys)):
            assert got.shape == exact.shape
            last_place = 2.0 ** (exact.abs().log2().floor() - 7)
            assert ((got.double() - exact).abs() <= 0.51 * last_place).all(), index
        assert torch.equal(after["out"], heads["out"])
        for part in ("keys", "values"):
            right = before[part].clone()
            for user, position in enumerate(positions):
                if 0 <= position < CAPACITY:
                    row = rows[part][0, user]
                    if dtype == "bfloat8_b":
                        row = block_floats(row)
                    at = (user, position) if blocks is None else (blocks[user, position // BLOCK], position % BLOCK)
                    right[at[0], :, at[1]] = row
            assert torch.equal(after[part], right), (index, part, (after[part] - right).abs().max())


@pytest.mark.sim
def test_one_trace_takes_new_rows_and_positions_and_is_skipped_by_the_gate(sim_device):
    """A skipped replay leaves the cache, and the last one's queries."""
    calls, made = [], []
    for number, (position, role) in enumerate([(3, HOLDS_EXACT), (20, YIELDED), (31, HOLDS_EXACT)]):
        call, wanted = case(1, 2, 1, 64, seed=number)
        given = (*call.arguments[:-1], words([position]))
        calls.append(Call("tests.support.run_op:gated", priorities(role, None), OP, *given, **call.options))
        made.append((position, wanted))
    device = sim_device("4x1", dispatch="fast", overlays=sgdc.overlays())
    for step, found in enumerate(run_ops(device, calls, traced=True)):
        position, wanted = made[step]
        right = torch.zeros(2, 32, 64)
        if step != 1:
            right[:, position] = torch.cat([wanted.keys, wanted.values])[:, 0, 0].float()
        for part, rows in zip(("keys", "values"), right, strict=True):
            torch.testing.assert_close(found[part][0, 0].float(), rows, rtol=2**-8, atol=0)
        torch.testing.assert_close(
            found["out"].float(), made[step if step != 1 else 0][1].queries.float(), rtol=2**-8, atol=0
        )


@pytest.mark.mock_mesh
def test_what_is_refused_is_named(mock_mesh):
    good, _ = case(*CASES[1])
    fused, cos, sin, heads, kv_heads, *caches = good.arguments
    cache, few, at = In(torch.zeros(3, 2, 32, 128)), In(torch.zeros(3, 1, 32, 128)), words([0, 1, 2])

    def call(x: In = fused, angles: In = cos, sizes=(heads, kv_heads), caches=caches) -> Call:
        return Call(OP, x, angles, sin, *sizes, *caches, **good.options)

    rows = "cos must be BFLOAT16 ROW_MAJOR (1, 1, 3, 128), interleaved on the device, it is BFLOAT16"
    alike = "the caches must be alike: key_cache is BFLOAT16 (3, 2, 32, 128), value_cache is BFLOAT16 (3, 1, 32, 128)"
    other = "caches of 3 users and 1 heads of 128 do not take keys of 3 users and 2 heads of 128"
    calls = {
        "heads must be 1 to 32, got 0": call(sizes=(0, 2)),
        "kv_heads must be 1 to 32, got 2.0": call(sizes=(2, 2.0)),
        f"{rows} TILE (1, 1, 3, 128)": call(angles=In(cos.values)),
        f"{rows} ROW_MAJOR (1, 1, 2, 128)": call(angles=In(cos.values[:, :, :2], layout="ROW_MAJOR")),
        "2 + 2 x 3 heads of 128 do not fit fused (1, 1, 3, 768) and sin (1, 1, 3, 128)": call(sizes=(2, 3)),
        "fused must be width-sharded in L1, it is INTERLEAVED in DRAM": call(In(fused.values)),
        "shards of fused must be [32, 128] row by row, got [32, 256]": call(In(fused.values, memory=shards(3, 256))),
        alike: call(caches=(cache, few, at)),
        "positions must be INT32 ROW_MAJOR (3,), interleaved on the device": call(caches=(cache, cache, words([0, 1]))),
        other: call(caches=(few, few, at)),
    }
    check_refused(mock_mesh((1, 1)), calls)
