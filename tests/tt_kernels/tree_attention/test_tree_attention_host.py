# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the tree attention op does on the host: its reference, its checks, the split of work, the L1 budget."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.llama31_8b.spec_decode.tree import TokenTree
from tests.tt_kernels.tree_attention.tree_programs import binary, chain, intervals_of, random_tree, star
from tt_kernels.common.circular_buffers import l1_bytes
from tt_kernels.common.page_table import Paging
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.tree_attention.checks import (
    MAX_NODES,
    Problem,
    check_intervals,
    check_problem,
    check_room,
)
from tt_kernels.tree_attention.reference import path_of, tree_attention_reference
from tt_kernels.tree_attention.work_split import (
    DECIDER,
    EXCHANGE,
    INDICES,
    WORKER,
    choose_work_split,
    group_sizes,
    job_sizes,
    make_buffers,
    rest_tiles,
)

GRID = tuple((x, y) for y in range(8) for x in range(8))
N150_L1 = 1_201_824
LLAMA = Problem(1, 32, 8, 128, 131072, "BFLOAT8_B", 64)

Q = TensorFacts((1, 8, 2 * 20, 64), "BFLOAT16")
CACHE = TensorFacts((2, 2, 128, 64), "BFLOAT16")
PREFIX = TensorFacts((2,), "INT32", "ROW_MAJOR")
INTERVALS = TensorFacts((2, 2, 20), "INT32", "ROW_MAJOR")


# --- the reference ---


def test_the_reference_attends_to_the_prefix_and_the_path():
    """A user whose values name their positions: the result is their mean where all keys are alike."""
    parents = [-1, 0, 0, 1]
    q, k = torch.ones(1, 2, 8, 4), torch.ones(2, 1, 16, 4)
    v = torch.arange(16.0).view(1, 1, 16, 1).expand(2, 1, 16, 4)
    found = tree_attention_reference(q, k, v, [3, -1], [parents, parents])
    seen = [[0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 5], [0, 1, 2, 3, 4, 6]]
    expected = torch.tensor([sum(each) / len(each) for each in seen], dtype=torch.float64)
    torch.testing.assert_close(found[0, :, :4], expected.view(1, 4, 1).expand(2, 4, 4))
    assert not found[0, :, 4:].any()


@pytest.mark.parametrize("parents", [chain(6), star(6), binary(20), random_tree(30, 1, 0.2)], ids=str)
def test_intervals_of_the_tests_hide_what_is_not_on_the_path(parents):
    """So do those of TokenTree, which walks children in another order."""
    tree = TokenTree.from_parents(parents)
    for enter, leave in (intervals_of(parents), (tree.enter.tolist(), tree.leave.tolist())):
        check_intervals(enter, leave)
        for i in range(len(parents)):
            seen = [j for j in range(len(parents)) if enter[j] <= enter[i] and leave[j] >= leave[i]]
            assert seen == sorted(path_of(parents, i))


# --- integers that are no walk ---


@given(st.data())
def test_every_walk_passes(data):
    nodes = data.draw(st.integers(1, 40))
    parents = [data.draw(st.integers(-1, node - 1)) for node in range(nodes)]
    enter, leave = intervals_of(parents)
    check_intervals(torch.tensor(enter), torch.tensor(leave))
    # The nodes may be numbered in any order.
    order = data.draw(st.permutations(range(nodes)))
    check_intervals([enter[i] for i in order], [leave[i] for i in order])


@pytest.mark.parametrize(
    "enter, leave, message",
    [
        ([0, 2, 3], [2, 2, 3], "node 2 enters at 3, which is not from 0 to 2"),
        ([0, -1], [1, 1], "node 1 enters at -1, which is not from 0 to 1"),
        ([0, 1, 1], [2, 1, 1], "node 2 enters at 1, as node 1 does: enter times are a permutation"),
        ([0, 1, 2], [2, 0, 2], "node 1 enters at 1 and leaves at 0, not from 1 to 2"),
        ([1, 0, 2], [3, 1, 2], "node 0 enters at 1 and leaves at 3, not from 1 to 2"),
        ([0, 1, 2], [1, 2, 2], "node 1 [1, 2] and node 0 [0, 1] overlap"),
        ([3, 1, 0, 2], [3, 3, 2, 2], "node 1 [1, 3] and node 2 [0, 2] overlap"),
        ([0, 1], [1], "2 enter times, but 1 leave times"),
        ([], [], "a tree has 1 to 256 nodes, this one has 0"),
        (range(257), range(257), "a tree has 1 to 256 nodes, this one has 257"),
    ],
)
def test_intervals_of_no_walk_are_refused(enter, leave, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check_intervals(list(enter), list(leave))


def test_trees_over_the_capacity_are_refused():
    check_room([108, -1, 0], 20, 128)
    check_room(torch.tensor([108]), 20, 128)
    for prefixes, message in (
        ([0, 109], "user 1 has 109 cached tokens and a tree of 20 nodes: 129 are more than the 128"),
        ([-2], "user 0 has a prefix of -2: it must be -1 (skipped), 0 or more"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            check_room(prefixes, 20, 128)


# --- tensors ---


def test_the_problem_is_what_the_shapes_say():
    problem = check_problem(Q, CACHE, CACHE, PREFIX, INTERVALS)
    assert problem == Problem(2, 8, 2, 64, 128, "BFLOAT16", 20)
    assert (problem.items, problem.group_heads, problem.query_tiles, problem.tree_tiles) == (4, 4, 3, 2)
    assert replace(problem, nodes=1).tree_tiles == 1
    assert replace(problem, nodes=2).tree_tiles == 2


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"q": replace(Q, dtype="BFLOAT8_B")}, "q must be BFLOAT16, it is BFLOAT8_B"),
        ({"q": replace(Q, layout="ROW_MAJOR")}, "q must have layout TILE, it has ROW_MAJOR"),
        ({"q": replace(Q, shape=(1, 8, 39, 64))}, "2 * 20 = 40 rows, its shape is (1, 8, 39, 64)"),
        ({"q": replace(Q, shape=(2, 8, 40, 64))}, "2 * 20 = 40 rows, its shape is (2, 8, 40, 64)"),
        ({"q": replace(Q, shape=(8, 40, 64))}, "q must have 4 dimensions, its shape is (8, 40, 64)"),
        ({"q": replace(Q, shape=(1, 8, 40, 128))}, "q has head_dim 128, the caches have 64"),
        ({"q": replace(Q, shape=(1, 7, 40, 64))}, "7 query heads cannot be shared evenly by 2"),
        ({"q": replace(Q, shape=(1, 0, 40, 64))}, "q must have query heads"),
        ({"q": replace(Q, interleaved=False)}, "q must be interleaved, it is sharded"),
        ({"k": replace(CACHE, dtype="BFLOAT8_B")}, "they must be alike"),
        ({"prefix": replace(PREFIX, dtype="UINT32")}, "prefix must be INT32 ROW_MAJOR (2,), it is UINT32"),
        (
            {"prefix": replace(PREFIX, shape=(3,))},
            "prefix must be INT32 ROW_MAJOR (2,), it is INT32 ROW_MAJOR (3,)",
        ),
        ({"prefix": replace(PREFIX, on_device=False)}, "prefix must be on device, it is in host memory"),
        ({"intervals": replace(INTERVALS, layout="TILE")}, "intervals must be INT32 ROW_MAJOR (2, 2, nodes)"),
        ({"intervals": replace(INTERVALS, shape=(2, 20, 2))}, "it is INT32 ROW_MAJOR (2, 20, 2)"),
        ({"intervals": replace(INTERVALS, shape=(2, 40))}, "it is INT32 ROW_MAJOR (2, 40)"),
        (
            {"intervals": replace(INTERVALS, shape=(2, 2, 257))},
            "1 to 256 nodes are supported, intervals has 257",
        ),
    ],
)
def test_tensors_that_are_not_supported_are_refused(wrong, message):
    named = {"q": Q, "k": CACHE, "v": CACHE, "prefix": PREFIX, "intervals": INTERVALS} | wrong
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        check_problem(*named.values())


@pytest.mark.parametrize(
    "shape, rows, message",
    [
        ((9, 2, 128, 64), 180, "1 to 8 users are supported, the caches have 9"),
        ((2, 2, 128, 96), 40, "head_dim must be one of (64, 128), it is 96"),
        ((2, 2, 100, 64), 40, "the caches must hold a multiple of 32 tokens, they hold 100"),
        ((2, 0, 128, 64), 40, "8 query heads cannot be shared evenly by 0"),
    ],
)
def test_caches_that_are_not_supported_are_refused(shape, rows, message):
    users, dim = shape[0], shape[3]
    cache = replace(CACHE, shape=shape)
    q = replace(Q, shape=(1, 8, rows, dim))
    words = replace(PREFIX, shape=(users,)), replace(INTERVALS, shape=(users, 2, 20))
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        check_problem(q, cache, cache, *words)
    small = replace(CACHE, shape=(2, 2, 32, 64))
    with pytest.raises(UnsupportedError, match="a tree of 40 nodes exceeds the 32 tokens the caches hold"):
        wide = replace(Q, shape=(1, 8, 80, 64))
        check_problem(wide, small, small, PREFIX, replace(INTERVALS, shape=(2, 2, 40)))


# --- the layout ---


def test_jobs_cover_the_query_tiles_in_any_number_of_passes():
    assert job_sizes(1) == [1] and job_sizes(8) == [8, 4, 3, 2, 1]
    for tiles in range(1, 70):
        for size in job_sizes(tiles):
            passes = -(-tiles // size)
            assert (passes - 1) * size < tiles <= passes * size


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("cache", ["BFLOAT16", "BFLOAT8_B"])
@pytest.mark.parametrize("nodes", [1, 16, 64, MAX_NODES])
@pytest.mark.parametrize("users, heads, kv_heads", [(1, 32, 8), (8, 32, 8), (8, 4, 1), (1, 16, 1)])
def test_defaults_serve_every_shape(head_dim, cache, nodes, users, heads, kv_heads):
    problem = Problem(users, heads, kv_heads, head_dim, 131072, cache, nodes)
    layout = choose_work_split(problem, GRID, N150_L1)
    assert l1_bytes(layout.buffers)[WORKER] <= N150_L1
    assert layout.query_tiles * layout.passes >= problem.query_tiles
    assert len(set(layout.workers)) == len(layout.workers) <= len(GRID)
    assert len(layout.groups) <= problem.items * layout.passes


@pytest.mark.parametrize("key_chunk, nodes, rest", [(128, 16, 2), (128, 1, 0), (64, 16, 0), (192, 64, 3), (256, 33, 2)])
def test_buffers_hold_the_rest_of_a_guess_end_unless_it_is_more_than_half_a_chunk(key_chunk, nodes, rest):
    problem, key_tiles = replace(LLAMA, nodes=nodes), key_chunk // 32
    guessing = replace(problem, guess=GuessRange.both_ends(key_chunk))
    assert (rest_tiles(guessing, key_tiles), rest_tiles(problem, key_tiles)) == (rest, 0)
    split = choose_work_split(guessing, GRID, N150_L1, query_tiles=1, key_chunk=key_chunk)
    assert split.key_tiles == key_tiles and split.buffers["cb_scores"].pages == 2 * (key_tiles + rest)


def test_less_l1_takes_more_passes_or_fewer_keys():
    plenty = choose_work_split(replace(LLAMA, nodes=256), GRID[:8], N150_L1)
    little = choose_work_split(replace(LLAMA, nodes=256), GRID[:8], 400_000)
    assert plenty.query_tiles > little.query_tiles and l1_bytes(little.buffers)[WORKER] <= 400_000
    least = choose_work_split(LLAMA, GRID, 150_000)
    assert least.key_tiles < plenty.key_tiles


@pytest.mark.parametrize(
    "options, message",
    [
        ({"workers_per_head": 65}, "65 workers per head need 65 cores, the grid has 64"),
        ({"workers_per_head": True}, "workers_per_head must be an integer of at least 1, got True"),
        ({"workers_per_head": 0}, "workers_per_head must be an integer of at least 1, got 0"),
        (
            {"query_tiles": 9},
            "query_tiles must be from 1 to the 8 that 64 nodes of 4 query heads take, got 9",
        ),
        ({"query_tiles": 0}, "query_tiles must be from 1 to the 8"),
        ({"query_tiles": 1.5}, "query_tiles must be from 1 to the 8"),
        (
            {"key_chunk": 48},
            "key_chunk must be a multiple of 32 from 32 to the 131072 tokens of the caches, got 48",
        ),
        ({"key_chunk": 262144}, "key_chunk must be a multiple of 32"),
        (
            {"key_chunk": 8192},
            "query_tiles 1 and key_chunk 8192 with head_dim 128 and 1 worker(s) per head need",
        ),
    ],
)
def test_layouts_that_are_not_supported_are_refused(options, message):
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        choose_work_split(LLAMA, GRID, N150_L1, **options)


def test_the_l1_that_does_not_suffice_is_named():
    with pytest.raises(UnsupportedError, match=r"need \d+ bytes of L1 on a core, of which 9000 are free \(largest"):
        choose_work_split(LLAMA, GRID, 9000)


def test_every_buffer_has_its_index():
    found = make_buffers(replace(LLAMA, paging=Paging(64, 100)), 5, 8, 4)
    guessed = replace(LLAMA, guess=GuessRange.both_ends(128), paging=Paging(64, 100))
    speculating = make_buffers(guessed, 5, 8, 4, peer=True)
    assert sorted(buffer.index for buffer in speculating.values()) == list(range(len(INDICES)))
    measure = {"cb_guess", "cb_measured_guess", "cb_measured_exact", "cb_norms", "cb_sums"}
    assert speculating.keys() - found.keys() == measure | {"cb_outgoing"}
    assert make_buffers(guessed, 5, 8, 4).keys() - found.keys() == measure
    roles = {name: buffer.roles for name, buffer in speculating.items() if buffer.roles != {WORKER}}
    others = {"cb_control": {WORKER, DECIDER, EXCHANGE}, "cb_sums": {WORKER, DECIDER}, "cb_outgoing": {EXCHANGE}}
    assert roles == others
    assert speculating["cb_sums"].page_bytes == 16 * LLAMA.items * -(-LLAMA.query_tiles // 8)
    assert found["cb_state"].pages == 9 * 5 and found["cb_key_times"].pages == 2 * 3
    assert found["cb_gathered"].pages == 3 * 8 * 5 and found["cb_gathered_row_max"].pages == 3 * 8
    assert found["cb_pages"].page_bytes == 448
    assert not {"cb_gathered", "cb_handover", "cb_pages"} & make_buffers(LLAMA, 1, 8, 4).keys()


def test_the_deciding_core_and_the_exchange_core_are_no_workers():
    """The first is the last core of the grid that is left, unless a TP group names it."""
    guessed = replace(LLAMA, guess=GuessRange.both_ends(128))
    alone = choose_work_split(guessed, GRID, N150_L1)
    assert alone.decider == GRID[-1] and alone.exchange is None
    pair = choose_work_split(guessed, GRID, N150_L1, exchange=GRID[-1])
    assert (pair.decider, pair.exchange) == (GRID[-2], GRID[-1])
    group = choose_work_split(guessed, GRID, N150_L1, exchange=GRID[-1], decider=GRID[0])
    assert group.cores[DECIDER] == [GRID[0]] and group.cores[EXCHANGE] == [GRID[-1]]
    for split in (alone, pair, group):
        assert not {split.decider, split.exchange} & set(split.workers)
    with pytest.raises(UnsupportedError, match="1 workers per head need 1 cores, the grid has 0 for them"):
        choose_work_split(guessed, GRID[:1], N150_L1)


def test_cores_are_dealt_to_groups():
    """8 heads on 64 cores: 8 workers each; with fewer cores than jobs, one each."""
    layout = choose_work_split(replace(LLAMA, nodes=8), GRID, N150_L1)
    assert (len(layout.groups), layout.workers_per_group, layout.query_tiles) == (8, 8, 1)
    assert choose_work_split(replace(LLAMA, users=8), GRID, N150_L1, workers_per_head=1).workers_per_group == 1
    assert group_sizes(64, 3) == [1, 2, 4, 8, 16, 21, 32, 64] and group_sizes(6, 9) == [1, 2, 3, 4, 6]
    short = Problem(1, 32, 8, 128, 64, "BFLOAT8_B", 8)
    assert choose_work_split(short, GRID, N150_L1).workers_per_group == 1, "one tile each would only be merged"
