# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A cache in pages gives what the same tokens in a plain cache give, bit for bit, on the simulated N150; free blocks
hold NaN. Some tables are drawn: the blocks' size and order, the prefix that two users share, trees."""

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.run_op import Call, In, run_ops, words
from tests.tt_kernels.attention import CHIP, Case, blank_masses, in_blocks, random_tree
from tt_kernels.common.page_table import BLOCKS, Paging, check_page_table
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode.checks import check_problem
from tt_kernels.speculative_flash_decode.guess_range import GuessRange, chosen_rows
from tt_kernels.tree_attention.reference import path_of

CAPACITY, SHARED = 256, 128


def tables(block: int, seed: int, shared: int = 0) -> tuple[torch.Tensor, int]:
    """Return a page table of two users with blocks in a random order, some of which nobody has, and their number.
    shared: tokens of a prefix that both users have."""
    width = CAPACITY // block
    blocks = 2 * width + 3
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(seed))
    table = order[: 2 * width].view(2, width).to(torch.int32)
    table[1, : shared // block] = table[0, : shared // block]
    return table, blocks


def both(case: Case, q, caches, table, blocks, mode: str, at, parents=None, **options) -> list[Call]:
    """Return a call on plain caches and on paged ones, whose tables and caches follow the query."""
    paged = [in_blocks(cache, table, blocks) for cache in caches]
    return [
        case.call(mode, case.inputs(q, *caches), at, parents, **options),
        case.call(mode, case.inputs(q, *paged), at, parents, page_table=words(table), **options),
    ]


def check_same(plain: list[dict[str, Any]], paged: list[dict[str, Any]], table: torch.Tensor) -> None:
    """Assert that results are the same bit by bit, "keys" and "values" from the blocks of a table."""
    for mine, theirs in zip(plain, paged, strict=True):
        for name, value in mine.items():
            if isinstance(value, torch.Tensor):
                other = theirs[name]
                if name in ("keys", "values"):
                    other = torch.stack([other[row.long()].transpose(0, 1).flatten(1, 2) for row in table])
                assert torch.isfinite(value).all() and torch.equal(value, other), name


@pytest.mark.sim
@pytest.mark.parametrize("cache", ["bfloat16", pytest.param("bfloat8_b", marks=pytest.mark.slow)])
def test_decoding_from_pages(sim_device, cache):
    """Both results, and each alone of bfloat16; blocks of all sizes, a shared prefix, chosen tiles."""
    case = Case(1, 4, 2, 64, CAPACITY, users=2, cache=cache, workers=None, grid=(4, 2))
    q, *caches = case.random(1)
    for part in caches:
        part[1, :, :SHARED] = part[0, :, :SHARED]
    calls = []
    both_results = (32, "speculate", [5, 255]), (128, "speculate", [200, -1])
    alone = ((32, "exact", [5, 255]), (64, "guess", [130, 63])) if cache == "bfloat16" else ()
    for block, mode, at in (*both_results, *alone):
        table, blocks = tables(block, block, SHARED if block < 128 else 0)
        calls += both(case, q, caches, table, blocks, mode, at, chunk_size=64)
    chosen = words(chosen_rows([[[2, 5], [6]], [[1, 4], []]], CAPACITY), "uint32")
    more = {"guess_range": GuessRange(32, 32), "chosen": chosen}
    calls += both(case, q, caches, *tables(64, 64), "speculate", [255, 230], **more)
    results = run_ops(sim_device(CHIP), calls)
    check_same(results[::2], results[1::2], table)
    for found in (results[0], results[-1]):
        assert not torch.equal(found["exact"], found["guess"]), "a guess that is the exact result shows nothing"
    assert results[1]["entries"] == results[3]["entries"], "blocks and tables are data"


def tree_calls(case: Case, q, caches, new, table, blocks, prefixes, parents, paths) -> list[Call]:
    """Return calls that write nodes, attend to them, guess from chosen tiles and hand out masses, and commit paths; on
    plain caches, then on paged ones."""
    calls = []
    fresh = [In(rows, case.cache) for rows in new]
    path = words([each + [-1] * (case.nodes - len(each)) for each in paths])
    chosen = chosen_rows([[[1], []][: case.kv_heads]] * case.users, CAPACITY)
    for paged in (False, True):
        held = [in_blocks(cache, table, blocks) if paged else cache for cache in caches]
        inputs = case.inputs(q, *held)
        inputs[1].read, inputs[2].read = "keys", "values"
        more = {"page_table": words(table)} if paged else {}
        prefix, op = words(prefixes), "tt_kernels.tree_cache.op"
        calls.append(Call(f"{op}:write_nodes", *inputs[1:], *fresh, prefix, case.nodes, **more))
        guess = {"program_config": None, "chosen": words(chosen, "uint32"), "tile_masses": blank_masses(case)}
        calls.append(case.call("speculate", inputs, prefixes, parents, **guess, **more))
        calls.append(Call(f"{op}:commit_path", inputs[1:], prefix, path, case.nodes, **more))
    return calls


@pytest.mark.sim
@settings(max_examples=2)
@given(data=st.data())
def test_drawn_tables(sim_device, data):
    """Trees that begin up to four tokens before the border of a block, any node's path committed."""
    tree = Case(5, 4, 2, 64, CAPACITY, users=2, cache="bfloat8_b")
    q, *caches = tree.random(1)
    for part in caches:
        part[1, :, :SHARED] = part[0, :, :SHARED]
    random = torch.Generator().manual_seed(4)
    new = [torch.randn(1, 2, 10, 64, generator=random).bfloat16() for _ in range(2)]
    calls, used = [], []
    for block in BLOCKS:
        seed = data.draw(st.integers(0, 2**31))
        shared = data.draw(st.integers(0, SHARED // 2 // block)) * block
        table, blocks = tables(block, seed, shared)
        parents, prefixes, paths = random_tree(5, seed, 0.0), [], []
        for _ in range(2):
            border = data.draw(st.integers(shared // block + 1, CAPACITY // block - 1)) * block
            prefixes.append(data.draw(st.sampled_from((-1, *range(border - 4, border + 1)))))
            paths.append(path_of(parents, data.draw(st.integers(0, 4)))[1:])
        used.append(table)
        calls += tree_calls(tree, q, caches, new, table, blocks, prefixes, [parents] * 2, paths)
    results = run_ops(sim_device("2x1"), calls)
    for number, table in enumerate(used):
        check_same(results[6 * number : 6 * number + 3], results[6 * number + 3 : 6 * number + 6], table)


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
