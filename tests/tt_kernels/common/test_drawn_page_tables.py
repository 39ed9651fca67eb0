# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Any page table gives what a plain cache gives, bit for bit, on the simulated N150: Hypothesis draws the blocks' size
and order, the prefix that two users share, positions, trees and what is committed; free blocks hold NaN."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tt_kernels.common.paged_programs import attention_body, tree_body
from tests.tt_kernels.tree_attention.tree_programs import intervals_of
from tt_kernels.common.page_table import BLOCKS
from tt_kernels.tree_attention.reference import path_of

pytestmark = pytest.mark.sim

LIMIT_S = 900
USERS, HEADS, KV_HEADS, HEAD_DIM, CAPACITY, PREFIX, NODES = 2, 2, 1, 64, 256, 128, 5


def cache_rows(seed: int) -> list[torch.Tensor]:
    """Keys and values whose first 128 tokens both users have."""
    random = torch.Generator().manual_seed(seed)
    rows = [torch.randn(USERS, KV_HEADS, CAPACITY, HEAD_DIM, generator=random).bfloat16() for _ in range(2)]
    for cache in rows:
        cache[1, :, :PREFIX] = cache[0, :, :PREFIX]
    return rows


@st.composite
def pages(draw, shareable: int) -> tuple[torch.Tensor, int, int, float, int]:
    """Draw a table, the tokens of a block, the number of blocks, what free ones hold, and the shared tokens, up to
    `shareable`."""
    block = draw(st.sampled_from(BLOCKS))
    width = CAPACITY // block
    blocks = USERS * width + draw(st.integers(1, 3))
    order = draw(st.permutations(range(blocks)))
    table = torch.tensor(order[: USERS * width], dtype=torch.int32).view(USERS, width)
    shared = draw(st.integers(0, shareable // block))
    table[1, :shared] = table[0, :shared]
    return table, block, blocks, math.nan, shared * block


@st.composite
def decoded(draw) -> tuple[Any, ...]:
    positions = draw(st.lists(st.integers(-1, CAPACITY - 1), min_size=USERS, max_size=USERS))
    return (*draw(pages(PREFIX))[:4], positions)


@st.composite
def committed(draw, parents: list[int]) -> tuple[Any, ...]:
    """Draw trees that start up to four tokens before the border of a block, and a path of each that is accepted."""
    *paged, shared = draw(pages(PREFIX // 2))
    block, prefixes, paths = paged[1], [], []
    for _ in range(USERS):
        border = draw(st.integers(shared // block + 1, CAPACITY // block - 1)) * block
        prefixes.append(draw(st.sampled_from((-1, *range(border - NODES + 1, border + 1)))))
        paths.append(path_of(parents, draw(st.integers(0, NODES - 1)))[1:])
    return (*paged, prefixes, paths)


@settings(max_examples=3)
@given(cases=st.lists(decoded(), min_size=3, max_size=3))
def test_flash_decode(sim_device, cases):
    """Exact, guessed and speculative."""
    queries = torch.randn(1, USERS, HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(2)).bfloat16()
    found, _ = sim_device("2x1").run(attention_body, "bfloat16", queries, *cache_rows(1), cases, 32, timeout=LIMIT_S)
    for plain, paged in found:
        for a, b in zip(plain, paged, strict=True):
            assert torch.isfinite(a).all() and torch.equal(a, b)


@settings(max_examples=3)
@given(data=st.data())
def test_trees_are_written_attended_to_and_committed(sim_device, data):
    parents = [-1] + [data.draw(st.integers(0, node - 1)) for node in range(1, NODES)]
    cases = data.draw(st.lists(committed(parents), min_size=3, max_size=3))
    random = torch.Generator().manual_seed(4)
    queries = torch.randn(1, HEADS, USERS * NODES, HEAD_DIM, generator=random).bfloat16()
    new = [torch.randn(1, KV_HEADS, USERS * NODES, HEAD_DIM, generator=random).bfloat16() for _ in range(2)]
    intervals = [intervals_of(parents)] * USERS
    given = "bfloat16", queries, *cache_rows(3), new, cases, intervals
    for plain, paged in sim_device("2x1").run(tree_body, *given, timeout=LIMIT_S):
        for a, b in zip(plain, paged, strict=True):
            assert torch.isfinite(a).all() and torch.equal(a, b)
