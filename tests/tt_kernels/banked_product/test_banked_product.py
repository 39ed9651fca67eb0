# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The banked product: how it is split at 8B shapes, against float64 on the simulated N150, and what is refused."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from perf.lib.tensors import errors_of
from tests.support.run_op import Call, In, Make, banks, check_refused, run_ops
from tt_kernels.banked_product.op import MAX_ROWS, REGISTERS, Split, buffers_of
from tt_kernels.banked_product.reference import banked_product_reference
from tt_kernels.common.circular_buffers import l1_bytes

OP = "tt_kernels.banked_product.op:banked_product"
STOCK = "models.llama31_8b.tt.modules:minimal_matmul"
# Eleven blocks for eight cores, the last of which has half as many columns; a bank ends inside a core's columns.
INPUTS, OUTPUTS = 11 * 32, 15 * 32
BANKS = banks(INPUTS, 3 * 32)


@given(
    rows=st.integers(1, MAX_ROWS),
    inputs=st.integers(1, 448),
    outputs=st.integers(1, 448),
    grid=st.sampled_from([(1, 1), (4, 3), (8, 8)]),
    dtype=st.sampled_from(["BFLOAT8_B", "BFLOAT4_B"]),
)
def test_every_column_is_one_cores(rows, inputs, outputs, grid, dtype):
    split = Split.of(rows, inputs, outputs, grid, dtype)
    parts = [split.part(core) for core in range(split.cores)]
    assert [column for first, count in parts for column in range(first, first + count)] == list(range(outputs))
    assert split.cores <= grid[0] * grid[1] and (split.cores < grid[0] or split.cores % grid[0] == 0)
    assert split.inner * split.blocks == inputs and split.inner * rows <= 64
    assert split.inner * rows <= 32 or max(l1_bytes(buffers_of(split, dtype)).values()) <= 1_100_000
    assert rows % split.piece[0] == split.columns % split.piece[1] == 0
    assert split.piece[0] * split.piece[1] <= REGISTERS
    assert split.piece[1] == max(wide for wide in range(1, REGISTERS + 1) if split.columns % wide == 0)


@pytest.mark.parametrize(
    ("inputs", "outputs", "columns", "cores"),
    [(128, 192, 3, 64), (128, 128, 2, 64), (128, 448, 7, 64), (448, 128, 2, 64), (128, 24, 1, 24), (56, 128, 2, 64)],
)
def test_products_of_8b_share_the_weight_evenly(inputs, outputs, columns, cores):
    split = Split.of(4, inputs, outputs, (8, 8), "BFLOAT8_B")
    assert (split.columns, split.cores, split.inner) == (columns, cores, 8)


@pytest.mark.sim
def test_both_formats_are_as_close_to_float64_as_their_bits(sim_device):
    """And the first to stock `minimal_matmul`, which multiplies longer chunks by the same weight. The last has blocks
    of many rows by four tiles."""
    random, calls = torch.Generator().manual_seed(0), []
    assert Split.of(9, 12, 15, (4, 3), "BFLOAT8_B").inner == 4
    for rows, inputs, dtype in ((40, INPUTS, "bfloat8_b"), (64, INPUTS, "bfloat4_b"), (288, 12 * 32, "bfloat8_b")):
        x = torch.randn(1, 1, rows, inputs, generator=random).bfloat16()
        weight, memory = torch.randn(1, 1, inputs, OUTPUTS, generator=random), banks(inputs, 3 * 32)
        calls.append(Call(OP, In(x, read="x"), In(weight, dtype, memory=memory, read="weight")))
    calls.append(Call(STOCK, *calls[0].arguments, Make("ttnn:DRAM_MEMORY_CONFIG")))
    *ours, stock = run_ops(sim_device("4x3"), calls)
    for found, limit in zip(ours, (0.008, 0.03, 0.008), strict=True):
        assert errors_of(found["out"], banked_product_reference(found["x"], found["weight"]))["error"] < limit
    apart = errors_of(ours[0]["out"], stock["out"])["error"]
    assert apart < 2**0.5 * 0.008, "both are off by that, each in its own way"


@pytest.mark.mock_mesh
def test_what_is_refused_is_named(mock_mesh):
    def rows(count: int = 64, inputs: int = INPUTS, dtype: str = "bfloat16", **options) -> In:
        return In(torch.zeros(1, 1, count, inputs), dtype, **options)

    def weight(dtype: str = "bfloat8_b", **options) -> In:
        return In(torch.zeros(1, 1, INPUTS, OUTPUTS), dtype, **({"memory": BANKS} | options))

    calls = {
        "x must be bfloat16 TILE on the device, it is BFLOAT8_B TILE": (rows(dtype="bfloat8_b"), weight()),
        "weight must be bfloat8_b or bfloat4_b TILE on the device, it is BFLOAT16": (rows(), weight("bfloat16")),
        "weight must be width-sharded in DRAM, it is INTERLEAVED in DRAM": (rows(), weight(memory="DRAM")),
        "x (1, 1, 64, 320) and weight (1, 1, 352, 480) must share whole tiles": (rows(inputs=320), weight()),
        "x may have 1024 rows, got 1056": (rows(1050), weight()),
    }
    check_refused(mock_mesh((1, 1)), {said: Call(OP, *pair) for said, pair in calls.items()})
