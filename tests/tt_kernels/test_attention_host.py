# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the attention ops do on the host: their references, how work is split, what fits L1, what is refused."""

import math
import re
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.llama31_8b.reference.model.attention import OneQuery
from models.llama31_8b.spec_decode.tree import TokenTree
from tests.support.host_kernels import run_header
from tests.tt_kernels.attention import intervals_of
from tt_kernels.common import merge_tree
from tt_kernels.common.attention_checks import check_fidelity, check_numbers
from tt_kernels.common.attention_split import (
    DECIDER,
    EXCHANGE,
    MAX_CHUNKS,
    MAX_COLUMNS,
    WORKER,
    most_tiles,
)
from tt_kernels.common.circular_buffers import l1_bytes
from tt_kernels.common.priority import UNKNOWN, YIELDED
from tt_kernels.common.reference import NobodyError, sender, sends
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode import checks as flash_checks
from tt_kernels.speculative_flash_decode import work_split as flash
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.reference import (
    guess_positions,
    speculative_flash_decode_reference,
)
from tt_kernels.tree_attention import checks as tree_checks
from tt_kernels.tree_attention import work_split as trees
from tt_kernels.tree_attention.reference import path_of

KERNELS = "tt_kernels/common/kernels"
GRID = tuple((x, y) for y in range(8) for x in range(8))
# What the runtime leaves on an N150 is asked of it at run time; this is what it leaves on the chips of the tests.
N150_L1 = 1_201_824
LLAMA = flash_checks.Problem(1, 32, 8, 128, 131072, "BFLOAT8_B", 256)
LLAMA_TREE = tree_checks.Problem(1, 32, 8, 128, 131072, "BFLOAT8_B", 64)
TOKENS = (1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 256, 257, 1000, 4096)
RANGES = [
    *(GuessRange.both_ends(32 * tiles) for tiles in (1, 2, 4)),
    *(GuessRange(first, last, whole) for first, last in ((32, 32), (32, 96), (128, 64)) for whole in (False, True)),
    GuessRange(1024, 1024),
]

# ------------------------------------------------------------------------------ references


@pytest.mark.parametrize("position", [63, 64, 96, 127])
def test_the_reference_is_the_models_segmented_attention(position):
    torch.manual_seed(0)
    chunk, heads, kv_heads, head_dim = 32, 6, 2, 16
    q = torch.randn(1, 1, heads, head_dim)
    k, v = torch.randn(2, 1, kv_heads, 128, head_dim)
    found = speculative_flash_decode_reference(q, k, v, [position], chunk_size=chunk)
    cached = position + 1
    scaled = q.view(kv_heads, heads // kv_heads, head_dim) * head_dim**-0.5
    tail = cached // 32 * 32 - chunk
    segments = OneQuery(scaled, k[0, :, :cached], v[0, :, :cached], 1, (chunk, tail), slice(0, 1))
    torch.testing.assert_close(found.guess.view(1, -1).float(), segments.guess(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.exact.view(1, -1).float(), segments.exact(), atol=1e-5, rtol=1e-5)


# ------------------------------------------------------------------------------ who sends


def test_the_rows_alone_decide_who_sends():
    """Skipped users count with what stands in their rows, so that exchange and attention cannot differ."""
    assert sender([[0, 2], [1, 1]], 2) == 0 and sender([[0, 0], [1, 1]], 2) == 1
    assert sender([[0, 2], [1, 1]], 1) == 1, "entries past the users do not count"
    assert sender([[2], [2]], 1) == 0 and sender([[1], [2]], 1) == 1
    with pytest.raises(NobodyError):
        sender([[0, 2], [0, 2]], 1)


def test_the_kernels_decide_who_sends_as_the_reference_does(tmp_path):
    body = """std::printf("%d %d %d", priority::sends(in[0], in[1], 0), priority::sends(in[0], in[1], 1),
                          priority::nobody_holds(in[0], in[1]));"""
    cases = list(product(range(4), (0, 1, 2, 3, UNKNOWN)))
    for (own, other), found in zip(cases, run_header(tmp_path, f"{KERNELS}/priority.hpp", 2, body, cases), strict=True):
        assert found == [sends(own, other, 0), sends(own, other, 1), own == other == YIELDED]
        if other != UNKNOWN:
            assert sends(own, other, 0) != sends(other, own, 1), "one of them sends"


# ------------------------------------------------------------------------------ intervals of trees


@given(st.data())
def test_intervals_hide_what_is_not_on_the_path(data):
    """Those of the tests and of TokenTree, which walks children in another order; and nodes numbered in any order."""
    nodes = data.draw(st.integers(1, 40))
    parents = [data.draw(st.integers(-1, node - 1)) for node in range(nodes)]
    tree = TokenTree.from_parents(parents)
    for enter, leave in (intervals_of(parents), (tree.enter.tolist(), tree.leave.tolist())):
        ancestors = tree_checks.check_intervals(torch.tensor(enter), torch.tensor(leave))
        for i in range(nodes):
            seen = [j for j in range(nodes) if enter[j] <= enter[i] and leave[j] >= leave[i]]
            assert seen == sorted(path_of(parents, i)) and ancestors[i] == len(seen) - 1
    order = data.draw(st.permutations(range(nodes)))
    tree_checks.check_intervals([enter[i] for i in order], [leave[i] for i in order])


@pytest.mark.parametrize(
    "enter, leave, message",
    [
        ([0, 1, 1], [2, 1, 1], "enter times must be a permutation of 0 to 2, they are [0, 1, 1]"),
        ([0, 1, 2], [2, 0, 2], "node 1 enters at 1 and leaves at 0, not from 1 to 2"),
        ([1, 0, 2], [3, 1, 2], "node 0 enters at 1 and leaves at 3, not from 1 to 1"),
        ([0, 1, 2], [1, 2, 2], "node 1 enters at 1 and leaves at 2, not from 1 to 1"),
        ([0, 1], [1], "a tree has 1 to 256 nodes, this one 2 enter and 1 leave times"),
        (range(257), range(257), "a tree has 1 to 256 nodes, this one 257 enter and 257 leave times"),
    ],
)
def test_intervals_of_no_walk_are_refused(enter, leave, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tree_checks.check_intervals(list(enter), list(leave))


def test_trees_over_the_capacity_are_refused():
    tree_checks.check_room([108, -1, 0], 20, 128)
    tree_checks.check_room(torch.tensor([108]), 20, 128)
    for prefixes, message in (
        ([0, 109], "user 1 has 109 cached tokens and a tree of 20 nodes: 129 are more than the 128"),
        ([-2], "user 0 has a prefix of -2: it must be -1 (skipped), 0 or more"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            tree_checks.check_room(prefixes, 20, 128)


# ------------------------------------------------------------------------------ the split of key tiles


def test_the_kernels_workers_read_the_cache_once_and_the_references_guess_first(tmp_path):
    """The guess reads the tiles that the reference's positions lie in, and no others."""
    body = r"""
        const attention::GuessRange guess{uint32_t(in[1]), uint32_t(in[2]), in[3] != 0};
        const attention::Ends ends = in[5] ? attention::Ends(in[0], guess) : attention::Ends(in[0]);
        const attention::EvenSplit split(ends, in[4]);
        std::printf("%u", guess.bypassed(in[0]));
        for (uint32_t worker = 0; worker < in[4]; ++worker) {
            const auto has = [&](const attention::Range& of) { return of.begin <= worker && worker < of.end; };
            const auto p = split.part(worker);
            const attention::Range ranges[] = {p.first, p.last, p.middle};
            for (const auto& range : ranges) std::printf(" %u %u", range.begin, range.end);
            std::printf(" %u %u %u", attention::needs_mask(p, in[0]), has(split.with_guess()), has(split.with_rest()));
        }
    """
    cases = list(product(TOKENS, RANGES, (1, 2, 3, 7, 31), (False, True)))
    cases += [(each.bypass_below + more, each, 3, True) for each in RANGES for more in range(100)]
    given = [(t, g.first_tiles, g.last_tiles, int(g.whole_tail), *map(int, rest)) for t, g, *rest in cases]
    for case, (bypassed, *numbers) in zip(
        cases, run_header(tmp_path, f"{KERNELS}/chunk_split.hpp", 6, body, given), strict=True
    ):
        tokens, guess, workers, speculate = case
        total, tail, read, of_guess = -(-tokens // 32), guess.tail_tiles(tokens), [], []
        for worker in range(workers):
            *bounds, masked, has_guess, has_rest = numbers[9 * worker : 9 * worker + 9]
            first, last, middle = (list(range(*bounds[at : at + 2])) for at in (0, 2, 4))
            assert bool(masked) == (tokens % 32 != 0 and tokens // 32 in first + last + middle), case
            assert (bool(has_guess), bool(has_rest)) == (bool(first + last), bool(middle)), case
            assert len(first + last + middle) <= most_tiles(total, workers, flash.FEW_TILES), case
            assert worker or first + last + middle, "the reducer has a state to merge into"
            read += first + last + middle
            of_guess += first + last
        assert sorted(read) == list(range(total)), case
        ends = {*range(min(guess.first_tiles, total)), *range(max(total - tail, 0), total)}
        assert sorted(of_guess) == (sorted(ends) if speculate else []), case
        assert bool(bypassed) == (tokens < guess.bypass_below), case
        if speculate and not bypassed:
            seen = guess_positions(tokens - 1, guess).nonzero().flatten().tolist()
            assert seen == [at for tile in sorted(ends) for at in range(32 * tile, 32 * tile + 32) if at < tokens], case
            assert not guess.whole_tail or seen[-guess.last :] == list(range(tokens - guess.last, tokens)), case


def test_a_trees_workers_have_the_room_that_masses_take(tmp_path):
    """No worker has more tiles of a head than weights have room, nor more masked chunks than times."""
    body = r"""
        attention::GuessRange guess{uint32_t(in[2]), uint32_t(in[3]), true, uint32_t(in[0] - in[1] - 1)};
        const attention::EvenSplit split(attention::Ends(in[0], guess), in[4], 10);
        uint32_t tiles = 0, chunks = 0;
        for (uint32_t worker = 0; worker < in[4]; ++worker) {
            const attention::Part part = split.part(worker);
            tiles = attention::max(tiles, part.tiles());
            uint32_t masked = 0;
            attention::Range ranges[] = {part.first, part.last, part.middle};
            for (attention::Range& range : ranges)
                while (range.size() > 0) masked += attention::next_chunk(range, in[5], in[6]).end > in[1] / 32;
            chunks = attention::max(chunks, masked);
        }
        std::printf("%u %u", tiles, chunks);
    """
    forms = product((0, 30, 31, 95, 400, 3000), (2, 16, 33, 64, 256), (1, 4, 9, 60), (1, 8))
    cases = []
    for (prefix, nodes, first, last), workers, chunk in product(forms, (1, 2, 3, 7, 31), (1, 2, 8)):
        tokens = -(-(prefix + nodes) // 32) * 32
        problem = replace(LLAMA_TREE, nodes=nodes, max_tokens=tokens, guess=GuessRange(32, 32))
        most = chunk + trees.rest_tiles(problem, chunk)
        cases.append((problem, (prefix + nodes, prefix, first, last, workers, chunk, most)))
    given = [numbers for _, numbers in cases]
    for (problem, numbers), (tiles, chunks) in zip(
        cases, run_header(tmp_path, f"{KERNELS}/chunk_split.hpp", 7, body, given), strict=True
    ):
        assert tiles <= most_tiles(problem.cache_tiles, numbers[4], trees.FEW_TILES), numbers
        assert chunks <= trees.masked_chunks(problem, numbers[5]), numbers


# ------------------------------------------------------------------------------ the merge of partial results


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 7, 8, 17, 31, 62, 64])
def test_the_merge_tree_takes_logarithmically_many_levels(workers):
    tree = {worker: merge_tree.senders_to(worker, workers) for worker in range(workers)}
    assert sorted(sender for senders in tree.values() for sender in senders) == list(range(1, workers))
    assert all(merge_tree.parent_of(sender) == worker for worker, senders in tree.items() for sender in senders)
    assert merge_tree.levels(workers) == math.ceil(math.log(workers, 4))
    assert merge_tree.slots(workers) == len(tree[0]) <= 3 * merge_tree.levels(workers)


def way_of(worker: int) -> set[int]:
    """Return the workers that a worker's partial result comes to, itself included."""
    return {worker} | (way_of(merge_tree.parent_of(worker)) if worker else set())


def test_the_kernels_merge_tree_is_the_hosts(tmp_path):
    """And a worker waits for the slots of those behind which a worker has a part."""
    body = r"""
        std::printf("%u %u %u", merge_tree::slots(in[1]), in[0] ? merge_tree::slot_of(in[0]) : 0,
                    merge_tree::parent_of(in[0]));
        for (uint32_t slot = 0; slot < merge_tree::slots(in[1]); ++slot)
            std::printf(" %u", merge_tree::distance_of(slot));
        for (uint32_t begin = 0; begin <= in[1]; ++begin)
            for (uint32_t end = begin; end <= in[1]; ++end)
                std::printf(" %u", merge_tree::sources_among(in[0], begin, end));
    """
    cases = [(worker, n) for n in (1, 2, 3, 5, 8, 15, 16, 17, 20, 62) for worker in range(n)]
    for (worker, workers), found in zip(
        cases, run_header(tmp_path, f"{KERNELS}/merge_tree.hpp", 2, body, cases), strict=True
    ):
        parent = merge_tree.parent_of(worker)
        slot = merge_tree.senders_to(parent, workers).index(worker) if worker else 0
        behind = [
            {other for other in range(workers) if sender in way_of(other)}
            for sender in merge_tree.senders_to(worker, workers)
        ]
        sources = [
            sum(1 << slot for slot, workers_behind in enumerate(behind) if workers_behind & {*range(begin, end)})
            for begin in range(workers + 1)
            for end in range(begin, workers + 1)
        ]
        assert found == [merge_tree.slots(workers), slot, parent, *merge_tree.senders_to(0, workers), *sources]


# ------------------------------------------------------------------------------ cores and L1


def layout_of(problem, l1_free=N150_L1, cores=GRID, exchange=(7, 7), speculate=True, **options):
    """Return the layout of decoding with a guess, or of a tree's attention."""
    if isinstance(problem, tree_checks.Problem):
        return trees.choose_work_split(problem, tuple(cores), l1_free, exchange=exchange, **options)
    return flash.choose_work_split(problem, tuple(cores), l1_free, speculate=speculate, exchange=exchange, **options)


@pytest.mark.parametrize("nodes", [None, 16, tree_checks.MAX_NODES])
@pytest.mark.parametrize("cache_dtype", ["BFLOAT8_B", "BFLOAT16"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("heads, kv_heads", [(32, 8), (16, 1)])
def test_defaults_serve_every_shape(heads, kv_heads, head_dim, cache_dtype, nodes):
    """Also one head of 128 that 62 workers can share, each with slots for 6 partial results. nodes: None for one token,
    with a guess and without."""
    for users, max_tokens, chunk_size in product((1, 8), (1024, 131072), (32, 1024)):
        shape = users, heads, kv_heads, head_dim, max_tokens, cache_dtype
        if nodes is not None:
            problem = tree_checks.Problem(*shape, nodes)
            found = [layout_of(problem, exchange=None)]
            assert found[0].query_tiles * found[0].passes >= problem.query_tiles
        else:
            problem = flash_checks.Problem(*shape, chunk_size)
            found = [layout_of(problem), layout_of(problem, speculate=False, exchange=None)]
        for layout in found:
            assert max(l1_bytes(layout.buffers).values()) <= N150_L1
            cores, groups = layout.assignment.cores, len(layout.assignment.groups)
            assert len(set(cores)) == len(cores) <= len(GRID)
            if nodes is None:
                share = max_tokens / 32 / layout.assignment.workers_per_group
                assert layout.key_tiles <= chunk_size // 32 or share / layout.key_tiles > MAX_CHUNKS / 2
                if max_tokens == 131072:
                    assert groups == min(problem.items, 62) or groups * layout.assignment.workers_per_group >= 40


@pytest.mark.parametrize(
    "query_heads, kv_heads, rows, gathered",
    [(32, 8, 16, 32), (20, 5, 16, 32), (16, 4, 16, 16), (4, 1, 16, 16), (1, 1, 16, 16), (12, 1, 16, 16)]
    + [(13, 1, 32, 16), (16, 1, 32, 16), (16, 2, 16, 16), (32, 1, 32, 32)],
)
def test_rows_that_are_computed_hold_all_heads_and_probes(query_heads, kv_heads, rows, gathered):
    """Probes are two rows behind the band of four that holds the last of a key/value head's queries. The results of all
    heads are gathered in tiles of their own."""
    found = layout_of(replace(LLAMA, query_heads=query_heads, kv_heads=kv_heads)).buffers
    heights = {name: buffer.tile_rows for name, buffer in found.items() if buffer.dtype != "UINT32"}
    whole = {"cb_keys", "cb_values", "cb_mask", "cb_ones", "cb_norms", "cb_outgoing"}
    assert {name: height for name, height in heights.items() if name in whole} == dict.fromkeys(whole, 32)
    assert heights["cb_guess"] == heights["cb_exact"] == gathered
    assert {height for name, height in heights.items() if name not in {*whole, "cb_guess", "cb_exact"}} == {rows}
    pages = {name: buffer.page_bytes for name, buffer in found.items() if name not in ("cb_keys", "cb_values")}
    assert pages["cb_state"] == 4096 and pages["cb_query"] == 2048, "rows have their places whatever is computed"
    assert pages["cb_dense"] == pages["cb_gathered"] == 128 * rows, "stats follow the output that is computed"


def test_the_least_cores_and_l1_are_enough():
    two, wide = GRID[:2], replace(LLAMA, cache_dtype="BFLOAT16", chunk_size=2048)
    assert layout_of(LLAMA, cores=two[:1], speculate=False, exchange=None).assignment.workers == [(0, 0)]
    assert layout_of(LLAMA, cores=two, exchange=None).assignment.decider == (1, 0)
    needed = l1_bytes(flash.make_buffers(wide, 7, 64, speculate=True, peer=True))[WORKER]
    assert layout_of(wide, needed, workers_per_head=7, key_chunk=2048).key_tiles == 64
    with pytest.raises(UnsupportedError, match=f"key_chunk 2048 .* needs {needed} bytes .* {needed - 1} are free"):
        layout_of(wide, needed - 1, workers_per_head=7, key_chunk=2048)


def test_less_l1_takes_more_passes_or_fewer_keys():
    plenty = trees.choose_work_split(replace(LLAMA_TREE, nodes=256), GRID[:8], N150_L1)
    little = trees.choose_work_split(replace(LLAMA_TREE, nodes=256), GRID[:8], 400_000)
    assert plenty.query_tiles > little.query_tiles and l1_bytes(little.buffers)[WORKER] <= 400_000
    least = trees.choose_work_split(LLAMA_TREE, GRID, 150_000)
    assert least.key_tiles < plenty.key_tiles


GUESSED = replace(LLAMA_TREE, guess=GuessRange.both_ends(128))


@pytest.mark.parametrize(
    "problem, options, message",
    [
        (LLAMA, {"cores": GRID[:2], "exchange": (1, 0)}, "1 worker(s) per head and 1 output core(s) need 2 cores, "),
        (LLAMA, {"cores": GRID[:4], "workers_per_head": 5}, "need 6 cores, the grid has 4"),
        (LLAMA, {"l1_free": 60_000}, "of which 60000 are free"),
        *(
            (
                problem,
                {"workers_per_head": workers},
                f"workers_per_head must be an integer of at least 1, got {workers!r}",
            )
            for problem, workers in product((LLAMA, LLAMA_TREE), (0, 2.5, True, "2"))
        ),
        *(
            (problem, {"key_chunk": chunk}, f"from 32 to the 131072 tokens of the caches, got {chunk!r}")
            for problem, chunk in product((LLAMA, LLAMA_TREE), (0, 48, 262144, -32, 64.0, True))
        ),
        (LLAMA_TREE, {"workers_per_head": 65}, "65 workers per head need 65 cores, the grid has 64"),
        (
            LLAMA_TREE,
            {"query_tiles": 9},
            "query_tiles must be from 1 to the 8 that 64 nodes of 4 query heads take, got 9",
        ),
        (LLAMA_TREE, {"query_tiles": 1.5}, "query_tiles must be from 1 to the 8"),
        (LLAMA_TREE, {"key_chunk": 8192}, "key_chunk 8192 with head_dim 128 and 1 worker(s) per head need"),
        (LLAMA_TREE, {"l1_free": 9000}, "bytes of L1 on a core, of which 9000 are free (largest"),
        (GUESSED, {"cores": GRID[:1]}, "1 workers per head need 1 cores, the grid has 0 for them"),
    ],
)
def test_layouts_that_cannot_be_are_refused(problem, options, message):
    exchange = None if isinstance(problem, tree_checks.Problem) else (7, 7)
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        layout_of(problem, **{"exchange": exchange} | options)


def test_the_deciding_core_and_the_exchange_core_are_no_workers():
    """The first is the last core of the grid that is left, unless a TP group names it."""
    alone, pair, group = (
        trees.choose_work_split(GUESSED, GRID, N150_L1, **fixed).assignment
        for fixed in ({}, {"exchange": GRID[-1]}, {"exchange": GRID[-1], "decider": GRID[0]})
    )
    assert alone.decider == GRID[-1] and alone.exchange is None
    assert (pair.decider, pair.exchange) == (GRID[-2], GRID[-1])
    assert group.by_role[DECIDER] == [GRID[0]] and group.by_role[EXCHANGE] == [GRID[-1]]
    for split in (alone, pair, group):
        assert not {split.decider, split.exchange} & set(split.workers)


@pytest.mark.parametrize("nodes", [1, 16, 64])
@pytest.mark.parametrize("users, max_tokens", [(1, 131072), (8, 8192)])
def test_trees_that_hand_out_masses_do_a_head_at_once(nodes, users, max_tokens):
    problem = replace(
        GUESSED,
        **{"users": users, "max_tokens": max_tokens, "nodes": nodes},
        with_chosen=True,
        with_masses=True,
    )
    layout = trees.choose_work_split(problem, GRID, N150_L1, exchange=GRID[-1])
    assert (layout.passes, layout.query_tiles) == (1, problem.query_tiles)
    assert layout.key_tiles + trees.rest_tiles(problem, layout.key_tiles) <= MAX_COLUMNS
    assert max(buffer.index for buffer in layout.buffers.values()) < 32, "those that a core has"
    by_index = [(buffer.index, role) for buffer in layout.buffers.values() for role in buffer.roles]
    assert len(set(by_index)) == len(by_index), "two buffers of a core"
    refused = [({"key_chunk": 800}, "key_chunk 800: at most ... where masses are handed out")]
    if fewer := problem.query_tiles - 1:
        refused.append(({"query_tiles": fewer}, f"query_tiles must be the {fewer + 1} of .* masses .* got {fewer}"))
    for options, message in refused:
        with pytest.raises(UnsupportedError, match=message):
            trees.choose_work_split(problem, GRID, N150_L1, **options)
    with pytest.raises(UnsupportedError, match="query_tiles 32 and key_chunk 32 .* 150000 are free"):
        trees.choose_work_split(replace(problem, nodes=256, users=1), GRID, 150_000)


# ------------------------------------------------------------------------------ what is refused

Q, CACHE = TensorFacts((1, 2, 32, 128), "BFLOAT16"), TensorFacts((2, 8, 1024, 128), "BFLOAT8_B")
WHERE = TensorFacts((2,), "INT32", "ROW_MAJOR")
FLASH_GIVEN = {"q": Q, "k": CACHE, "v": CACHE, "positions": WHERE, "chunk_size": 128}
TREE_CACHE = TensorFacts((2, 2, 128, 64), "BFLOAT16")
TREE_Q, INTERVALS = TensorFacts((1, 8, 2 * 20, 64), "BFLOAT16"), TensorFacts((2, 2, 20), "INT32", "ROW_MAJOR")
TREE_GIVEN = {"q": TREE_Q, "k": TREE_CACHE, "v": TREE_CACHE, "prefix": WHERE, "intervals": INTERVALS}


def changed(given: dict[str, Any], wrong: dict[str, Any]) -> list[Any]:
    """Return a check's arguments with other facts of some tensors, "kv" for both caches, or with other values."""
    both = dict.fromkeys(("k", "v"), wrong["kv"]) if "kv" in wrong else {}
    asked = given | {name: value for name, value in wrong.items() if name != "kv"} | both
    return [replace(given[name], **each) if isinstance(each, dict) else each for name, each in asked.items()]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"q": dict(dtype="BFLOAT8_B")}, "q must be BFLOAT16, it is BFLOAT8_B"),
        ({"q": dict(layout="ROW_MAJOR")}, "q must have layout TILE, .*ROW_M"),
        ({"q": dict(on_device=False)}, "q must be on device"),
        ({"k": dict(interleaved=False)}, "k must be interleaved, it is sharded"),
        ({"q": dict(shape=(2, 32, 128))}, r"4 dimensions, .*\(2, 32, 128\)"),
        ({"q": dict(shape=(2, 2, 32, 128))}, r"one token per user, .*\(2, 2, 32"),
        ({"v": dict(dtype="BFLOAT16")}, "k is BFLOAT8_B .* v is BFLOAT16"),
        ({"kv": dict(dtype="BFLOAT4_B")}, "BFLOAT8_B, they are BFLOAT4_B"),
        ({"kv": dict(shape=(4, 8, 1024, 128))}, "q has 2 users .* have 4"),
        ({"kv": dict(shape=(2, 8, 1024, 64))}, "head_dim 128, .* have 64"),
        ({"kv": dict(shape=(2, 5, 1024, 128))}, "32 query heads .* by 5 key"),
        ({"kv": dict(shape=(2, 8, 1000, 128))}, "multiple of 32 .* hold 1000"),
        ({"q": dict(shape=(1, 2, 64, 128))}, "1 to 32 query heads .* q has 64"),
        ({"q": dict(shape=(1, 2, 32, 96)), "kv": dict(shape=(2, 8, 1024, 96))}, r"one of \(64, 128\), it is 96"),
        (
            {"q": dict(shape=(1, 9, 32, 128)), "kv": dict(shape=(9, 8, 1024, 128))},
            "1 to 8 users are supported, there are 9",
        ),
        ({"chunk_size": 100}, "multiple of 32, got 100"),
        ({"chunk_size": 0}, "multiple of 32, got 0"),
        ({"chunk_size": 2048}, "chunk_size 2048 exceeds the 1024 tokens"),
        ({"positions": dict(shape=(3,))}, r"INT32 ROW_MAJOR \(2,\), .* it is .* \(3,\)"),
        ({"positions": dict(dtype="UINT32")}, "it is UINT32"),
        ({"positions": dict(layout="TILE")}, "it is INT32 TILE"),
        ({"guess": "both ends"}, "guess_range must be a GuessRange, it is a str"),
        ({"guess": GuessRange(48, 64)}, "guess_range.first must be a multiple of 32 from 32 to the 1024 .* got 48"),
        ({"guess": GuessRange(64, 0)}, "guess_range.last must be .* got 0"),
        ({"guess": GuessRange(64, 2048)}, "guess_range.last must be .* got 2048"),
        ({"guess": GuessRange(64, 64, 1)}, "guess_range.whole_tail must be True or False, got 1"),
    ],
)
def test_decodings_unsupported_inputs_are_refused_with_their_values(wrong, message):
    with pytest.raises(UnsupportedError, match=message):
        flash_checks.check_problem(*changed(FLASH_GIVEN, wrong))


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"q": dict(dtype="BFLOAT8_B")}, "q must be BFLOAT16, it is BFLOAT8_B"),
        ({"q": dict(shape=(1, 8, 39, 64))}, "2 * 20 = 40 rows, its shape is (1, 8, 39, 64)"),
        ({"q": dict(shape=(2, 8, 40, 64))}, "2 * 20 = 40 rows, its shape is (2, 8, 40, 64)"),
        ({"q": dict(shape=(1, 0, 40, 64))}, "q must have query heads"),
        (
            {"prefix": dict(shape=(3,))},
            "prefix must be INT32 ROW_MAJOR (2,), interleaved on the device, it is INT32 ROW_MAJOR (3,)",
        ),
        ({"prefix": dict(on_device=False)}, "on the device, it is INT32 ROW_MAJOR (2,), interleaved in host memory"),
        ({"intervals": dict(layout="TILE")}, "intervals must be INT32 ROW_MAJOR (2, 2, 20)"),
        ({"intervals": dict(shape=(2, 20, 2))}, "intervals must be INT32 ROW_MAJOR (2, 2, 2)"),
        ({"intervals": dict(shape=(2, 40))}, "intervals must be of 1 to 256 nodes, (2, 2, nodes), they are (2, 40)"),
        (
            {"intervals": dict(shape=(2, 2, 257))},
            "intervals must be of 1 to 256 nodes, (2, 2, nodes), they are (2, 2, 257)",
        ),
        (
            {"q": dict(shape=(1, 8, 80, 64)), "intervals": dict(shape=(2, 2, 40)), "kv": dict(shape=(2, 2, 32, 64))},
            "a tree of 40 nodes exceeds the 32 tokens the caches hold",
        ),
    ],
)
def test_trees_unsupported_inputs_are_refused_with_their_values(wrong, message):
    """What trees alone check, and that they check what both ops do (above)."""
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        tree_checks.check_problem(*changed(TREE_GIVEN, wrong))


def test_numbers_and_names_are_checked():
    assert check_numbers(0.1, None, 64) == (0.1, 0.125)
    for threshold in (-0.1, float("nan"), float("inf"), 1e20, "0.1"):
        with pytest.raises(UnsupportedError, match=re.escape(f"got {threshold!r}")):
            check_numbers(threshold, None, 64)
    for scale in (0, 1e-5, -0.125, 101, 1e20, float("nan"), "1"):
        with pytest.raises(UnsupportedError, match=f"scale must be from 0.0001 to 100, got {re.escape(repr(scale))}"):
            check_numbers(0.1, scale, 64)
    for fidelity, text in (
        ("LoFi", "one of HiFi2, HiFi3, got 'LoFi'"),
        ("HiFi5", "one of HiFi2, HiFi3, got 'HiFi5'"),
        ("HiFi4", "HiFi4 gives single wrong outputs on Wormhole .* issue 38306"),
    ):
        with pytest.raises(UnsupportedError, match=text):
            check_fidelity(fidelity)
