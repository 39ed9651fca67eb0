# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A cache in pages gives what the same tokens in a plain cache give, bit for bit, on the simulated N150."""

from __future__ import annotations

import math
import re

import pytest
import torch

from tests.tt_kernels.common.paged_programs import attention_body, from_blocks, in_blocks, tree_body
from tt_kernels.common.page_table import Paging, check_page_table
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode.checks import check_problem
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.tile_lists import list_rows

LIMIT_S = 900
USERS, HEADS, KV_HEADS, HEAD_DIM, CAPACITY = 2, 4, 2, 64, 256
GARBAGE = math.nan


def tables(block: int, seed: int) -> tuple[torch.Tensor, int]:
    """A page table of blocks in a random order, some of which nobody has, and the number of blocks."""
    random = torch.Generator().manual_seed(seed)
    width = CAPACITY // block
    blocks = USERS * width + 3
    return torch.randperm(blocks, generator=random)[: USERS * width].view(USERS, width).to(torch.int32), blocks


def cache_rows(seed: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(USERS, KV_HEADS, CAPACITY, HEAD_DIM, generator=random).bfloat16() for _ in range(2)]


@pytest.mark.sim
@pytest.mark.parametrize("dtype", ["bfloat16", "bfloat8_b"])
def test_flash_decode_from_pages_is_bitwise_that_of_a_plain_cache(sim_device, dtype):
    keys, values = cache_rows(1)
    queries = torch.randn(1, USERS, HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(2)).bfloat16()
    keys[1, :, :128], values[1, :, :128] = keys[0, :, :128], values[0, :, :128]  # a prefix that both users have
    positions = {32: [5, 255], 64: [130, 63], 128: [200, -1]}
    cases = [(*_case(block, shared=block < 128), positions[block]) for block in (32, 64, 128)]
    device = sim_device("4x2")
    results, entries = device.run(attention_body, dtype, queries, keys, values, cases, 64, timeout=LIMIT_S)
    for plain, paged in results:
        for a, b in zip(plain, paged, strict=True):
            assert torch.isfinite(a).all() and torch.equal(a, b)
    assert not torch.equal(results[0][0][0], results[0][0][1]), "a guess that is the exact result shows nothing"
    assert entries == 4, "one result and all results, plain and paged: blocks and tables are data"


@pytest.mark.sim
def test_listed_tiles_from_pages_are_bitwise_those_of_a_plain_cache(sim_device):
    keys, values = cache_rows(5)
    queries = torch.randn(1, USERS, HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(6)).bfloat16()
    positions = [255, 230]
    rows = list_rows([256, 231], [[[2, 5], [6]], [[1, 4], []]])
    guess_range = GuessRange(32, 32, tiles=2)
    case = (*_case(64, shared=False), positions)
    ((plain, paged),), _ = sim_device("4x2").run(
        attention_body, "bfloat16", queries, keys, values, [case], 32, guess_range, rows, timeout=LIMIT_S
    )
    for a, b in zip(plain, paged, strict=True):
        assert torch.isfinite(a).all() and torch.equal(a, b)
    assert not torch.equal(plain[0], plain[1]), "a guess that is the exact result shows nothing"


def _case(block: int, shared: bool) -> tuple[torch.Tensor, int, int, float]:
    table, blocks = tables(block, block)
    if shared:
        table[1, : 128 // block] = table[0, : 128 // block]
    return table, block, blocks, GARBAGE


@pytest.mark.sim
@pytest.mark.parametrize("dtype", ["bfloat16", "bfloat8_b"])
def test_trees_in_pages_are_bitwise_those_of_a_plain_cache(sim_device, dtype):
    """Trees are written, attended to and committed across the border of a block."""
    nodes = 6
    keys, values = cache_rows(3)
    random = torch.Generator().manual_seed(4)
    queries = torch.randn(1, HEADS, USERS * nodes, HEAD_DIM, generator=random).bfloat16()
    new = [torch.randn(1, KV_HEADS, USERS * nodes, HEAD_DIM, generator=random).bfloat16() for _ in range(2)]
    intervals = [[[0, 1, 2, 3, 4, 5], [5, 3, 2, 3, 5, 5]]] * USERS
    starts = {32: ([30, 96], [[1, 3], [4, 5]]), 64: ([61, -1], [[4, 5], [1]]), 128: ([125, 0], [[2], []])}
    cases = [(*_case(block, shared=False), *starts[block]) for block in (32, 64, 128)]
    results = sim_device("4x2").run(tree_body, dtype, queries, keys, values, new, cases, intervals, timeout=LIMIT_S)
    for plain, paged in results:
        for a, b in zip(plain, paged, strict=True):
            assert torch.isfinite(a).all() and torch.equal(a, b)


def test_blocks_are_a_layout():
    keys, _ = cache_rows(5)
    for block in (32, 64, 128):
        table, blocks = tables(block, 7)
        assert torch.equal(from_blocks(in_blocks(keys, table, block, blocks, GARBAGE), table), keys)


def test_shapes_of_pages():
    paging = Paging(64, 100)
    assert (paging.shift, paging.capacity, paging.row_bytes) == (1, 6400, 448)
    q, positions = TensorFacts((1, 2, 32, 128), "BFLOAT16"), TensorFacts((2,), "INT32", "ROW_MAJOR")
    cache, table = TensorFacts((70, 8, 64, 128), "BFLOAT8_B"), TensorFacts((2, 16), "INT32", "ROW_MAJOR")
    problem = check_problem(q, cache, cache, positions, 256, page_table=table)
    assert (problem.users, problem.kv_heads, problem.max_tokens, problem.paging) == (2, 8, 1024, Paging(64, 16))


@pytest.mark.parametrize(
    "table, cache, message",
    [
        (((2, 16), "UINT32", "ROW_MAJOR"), (70, 8, 64, 128), "page_table must be INT32 ROW_MAJOR"),
        (((3, 16), "INT32", "ROW_MAJOR"), (70, 8, 64, 128), "page_table must be (2, blocks of a user)"),
        (((2, 0), "INT32", "ROW_MAJOR"), (70, 8, 64, 128), "its shape is (2, 0)"),
        (((2, 16), "INT32", "ROW_MAJOR"), (70, 8, 256, 128), "blocks of 32, 64, 128 tokens, this one of 256"),
    ],
)
def test_tables_that_are_not_supported_are_refused(table, cache, message):
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        check_page_table(TensorFacts(*table), 2, TensorFacts(cache, "BFLOAT16"))
