# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The decode product: how it is split at 8B shapes, against float64 on the simulated N150, and what is refused."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loguru import logger

from perf.lib.tensors import errors_of
from tests.support.run_op import Call, In, Make, banks, check_refused, run_ops, shards
from tt_kernels.decode_product.op import REGISTERS, WEIGHTS, Split

OP = "tt_kernels.decode_product.op:decode_product"
INPUTS = 7 * 32  # on seven cores: blocks end inside none of them, or between two
NARROW, WIDE = (23 * 32, 2 * 32), (31 * 32, 11 * 32)  # columns, of which a bank has so many: the last one fewer


def rows(users: int = 1, inputs: int = INPUTS, dtype: str = "bfloat16", **options) -> In:
    x = torch.randn(1, 1, users, inputs, generator=torch.Generator().manual_seed(users)).to(torch.bfloat16)
    return In(x, dtype, **({"memory": shards(7, 32), "read": "x"} | options))


def heads(users: int, count: int, head_dim: int) -> In:
    return In(torch.zeros(1, users, count, head_dim))


def weight(shape: tuple[int, int] = NARROW, dtype: str = "bfloat8_b", inputs: int = INPUTS, **options) -> In:
    outputs, columns = shape
    values = torch.randn(1, 1, inputs, outputs, generator=torch.Generator().manual_seed(outputs))
    return In(values, dtype, **({"memory": banks(inputs, columns), "read": "weight"} | options))


@given(
    inputs=st.integers(1, 448),
    outputs=st.integers(1, 1008),
    dtype=st.sampled_from(WEIGHTS),
)
def test_every_column_is_one_cores_and_blocks_fit(inputs, outputs, dtype):
    columns = -(-outputs // 12)
    split = Split.of(inputs, outputs, columns, dtype)
    parts = [split.part(core) for core in range(split.cores)]
    assert [column for first, count in parts for column in range(first, first + count)] == list(range(outputs))
    assert split.inner * split.blocks == inputs and split.cores <= 12
    assert split.piece == columns <= REGISTERS or split.piece <= REGISTERS // 2 < columns
    assert -(-columns // split.piece) == (1 if columns <= REGISTERS else -(-columns // (REGISTERS // 2)))


@pytest.mark.sim
def test_all_formats_are_as_close_to_float64_as_their_bits(sim_device):
    """Columns that stay in the registers and columns that are added up in L1, of one user to sixteen."""
    cases = [
        (1, NARROW, "bfloat8_b", (6, 128), 0.005),
        (16, WIDE, "bfloat4_b", (8, 128), 0.006),
        (9, NARROW, "bfloat4_b", (23, 32), 0.005),
        (5, WIDE, "bfloat16", (31, 32), 0.005),
        (2, WIDE, "bfloat8_b", (16, 64), 0.006),
    ]
    calls = [Call(OP, rows(users), weight(shape, dtype), shards(*memory)) for users, shape, dtype, memory, _ in cases]
    for (users, *case, limit), values in zip(cases, run_ops(sim_device("8x8"), calls), strict=True):
        errors = errors_of(values["out"], values["x"].double() @ values["weight"].double())
        logger.info("{} users, {}: {}", users, case, errors)
        assert values["out"].shape[2] == users and errors["error"] < limit and errors["pcc"] > 0.9999


@pytest.mark.sim
def test_heads_side_by_side_are_multiplied_as_joined_rows(sim_device):
    """Heads in L1 and in DRAM, of one tile of columns and of two, in all faces of a tile and in a second one."""
    cases = [(3, 7, 32, "L1"), (1, 37, 32, "DRAM"), (2, 20, 64, "L1")]
    calls = []
    for users, count, head_dim, memory in cases:
        inputs = count * head_dim
        whole = weight(inputs=inputs)
        joined = rows(users, inputs, memory=shards(inputs // 32, 32))
        result = shards(6, 128)
        out = In(joined.values.reshape(1, users, count, head_dim), memory=memory)
        calls += [Call(OP, out, whole, result), Call(OP, joined, whole, result)]
    found = run_ops(sim_device("8x8"), calls)
    for case, of_heads, of_rows in zip(cases, found[::2], found[1::2], strict=True):
        assert torch.equal(of_heads["out"], of_rows["out"]), case


@pytest.mark.mock_mesh
def test_what_is_refused_is_named(mock_mesh):
    def call(x: In | None = None, by: In | None = None, result: Make | None = None) -> Call:
        return Call(OP, x or rows(), by or weight(), result or shards(6, 128))

    calls = {
        "x must be bfloat16 TILE on the device, it is BFLOAT8_B": call(rows(dtype="bfloat8_b")),
        "x must be width-sharded in L1, it is WIDTH_SHARDED in DRAM": call(rows(memory=banks(32, 32))),
        "x may have 16 users, got 17": call(rows(17)),
        "weight must be width-sharded in DRAM, it is INTERLEAVED in DRAM": call(by=weight(memory="DRAM")),
        "x (1, 1, 1, 448) and weight (1, 1, 224, 736) must share whole tiles": call(
            rows(inputs=2 * INPUTS, memory=shards(7, 64))
        ),
        "memory_config must be width-sharded in L1, it is INTERLEAVED in DRAM": call(
            result=Make("ttnn:DRAM_MEMORY_CONFIG")
        ),
        # Of heads side by side.
        "x must be [1, users, heads, head_dim] of whole tiles, got (1, 2, 7, 48)": call(heads(2, 7, 48)),
        "UnsupportedError: x may have 16 users, got 17": call(heads(17, 7, 32)),
        "x (1, 1, 2, 256) and weight (1, 1, 224, 736) must share whole tiles": call(heads(2, 8, 32)),
    }
    check_refused(mock_mesh((1, 1)), calls)
