# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the attention ops do on the host: their references, how work is split, what fits L1, what is refused."""

import math
import re
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.llama31_8b.reference.model.attention import OneQuery
from models.llama31_8b.spec_decode.tree import TokenTree
from tests.support.host_kernels import run_header
from tests.tt_kernels.attention import binary, chain, intervals_of, random_tree, star
from tt_kernels.common import merge_tree
from tt_kernels.common.attention_split import (
    DECIDER,
    EXCHANGE,
    MAX_CHUNKS,
    MAX_COLUMNS,
    WORKER,
    assign_cores,
    most_tiles,
)
from tt_kernels.common.circular_buffers import l1_bytes
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, MAX_USERS, UNKNOWN, YIELDED
from tt_kernels.common.reference import NobodyError, sender, sends
from tt_kernels.common.speculative_chips import check_gathered
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode import checks as flash_checks
from tt_kernels.speculative_flash_decode import work_split as flash
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.reference import (
    guess_positions,
    receiver_priorities,
    sender_priorities,
    speculative_flash_decode_reference,
)
from tt_kernels.speculative_flash_decode.work_split import parts
from tt_kernels.tree_attention import checks as tree_checks
from tt_kernels.tree_attention import work_split as trees
from tt_kernels.tree_attention.reference import path_of, tree_attention_reference

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


def test_the_reference_skips_users_and_guesses_exactly_while_bypassed():
    torch.manual_seed(0)
    q, (k, v) = torch.randn(1, 3, 4, 16), torch.randn(2, 3, 2, 128, 16)
    found = speculative_flash_decode_reference(q, k, v, [-1, 62, 127], chunk_size=32)
    assert not found.exact[0, 0].any() and found.norm_sq[0] == 0
    assert torch.equal(found.guess[0, 1], found.exact[0, 1]) and found.distance_sq[1] == 0
    assert found.distance_sq[2] > 0, "128 tokens, of which 32 to 95 are not in the guess"
    torch.testing.assert_close(found.norm_sq[2], found.exact[0, 2].square().sum())


def test_the_reference_of_trees_attends_to_the_prefix_and_the_path():
    """A user whose values name their positions: the result is their mean where all keys are alike."""
    parents = [-1, 0, 0, 1]
    q, k = torch.ones(1, 2, 8, 4), torch.ones(2, 1, 16, 4)
    v = torch.arange(16.0).view(1, 1, 16, 1).expand(2, 1, 16, 4)
    found = tree_attention_reference(q, k, v, [3, -1], [parents, parents])
    seen = [[0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 5], [0, 1, 2, 3, 4, 6]]
    expected = torch.tensor([sum(each) / len(each) for each in seen], dtype=torch.float64)
    torch.testing.assert_close(found[0, :, :4], expected.view(1, 4, 1).expand(2, 4, 4))
    assert not found[0, :, 4:].any()


def test_guesses_of_the_reference_end_at_tiles_or_tokens():
    seen = {
        "of the paper": guess_positions(99, 32, tail_alignment=1),
        "of tiles": guess_positions(99, 32),
        "not whole": guess_positions(99, 32, guess_range=GuessRange(32, 32)),
    }
    tails = {"of the paper": range(68, 100), "of tiles": range(64, 100), "not whole": range(96, 100)}
    assert {name: each.nonzero().flatten().tolist() for name, each in seen.items()} == {
        name: [*range(32), *tail] for name, tail in tails.items()
    }
    assert guess_positions(62, 32).all()


# ------------------------------------------------------------------------------ decisions, and who sends


def test_outcomes_are_strict_and_count_bypassed_users_apart():
    distance, norm = torch.tensor([0.0, 0.0, 0.25, 0.0, 1.0]), torch.ones(5)
    positions, expected = [-1, 62, 63, 63, 127], [YIELDED, HOLDS_EXACT_UNVERIFIED, HOLDS_EXACT, YIELDED, HOLDS_EXACT]
    assert sender_priorities(distance, norm, positions, chunk_size=32, threshold=0.5) == expected
    assert sender_priorities(distance, norm, positions, chunk_size=32, threshold=0.0)[3] == HOLDS_EXACT
    assert receiver_priorities(positions) == [YIELDED, HOLDS_GUESS, HOLDS_GUESS, HOLDS_GUESS, HOLDS_GUESS]


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


@pytest.mark.parametrize("parents", [chain(6), star(6), binary(20), random_tree(30, 1, 0.2)], ids=str)
def test_intervals_hide_what_is_not_on_the_path(parents):
    """Those of the tests and of TokenTree, which walks children in another order."""
    tree = TokenTree.from_parents(parents)
    for enter, leave in (intervals_of(parents), (tree.enter.tolist(), tree.leave.tolist())):
        tree_checks.check_intervals(enter, leave)
        for i in range(len(parents)):
            seen = [j for j in range(len(parents)) if enter[j] <= enter[i] and leave[j] >= leave[i]]
            assert seen == sorted(path_of(parents, i))


@given(st.data())
def test_every_walk_passes_its_nodes_numbered_in_any_order(data):
    nodes = data.draw(st.integers(1, 40))
    enter, leave = intervals_of([data.draw(st.integers(-1, node - 1)) for node in range(nodes)])
    tree_checks.check_intervals(torch.tensor(enter), torch.tensor(leave))
    order = data.draw(st.permutations(range(nodes)))
    tree_checks.check_intervals([enter[i] for i in order], [leave[i] for i in order])


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


@pytest.mark.parametrize("speculate", [False, True])
@pytest.mark.parametrize("chunk", [1, 2, 4, 16, 60])
@pytest.mark.parametrize("workers", [1, 2, 3, 7, 31])
def test_parts_cover_the_cache_once_and_evenly(workers, chunk, speculate):
    """The first workers share the guess; all are busy as long with it and the rest, or else share the rest alike."""
    for tokens in TOKENS:
        total = -(-tokens // 32)
        split = parts(tokens, chunk, chunk, workers, speculate)
        assert sorted(tile for part in split for tile in part.tiles()) == list(range(total))
        ends = {*range(min(chunk, total)), *range(max(total - chunk, 0), total)} if speculate else set()
        assert {tile for part in split for tile in part.guess} == ends
        guess, rest = ([len(part.guess) for part in split], [len(part.middle) for part in split])
        dealt = flash.workers_of_guess(len(ends), workers)
        assert max(guess[:dealt], default=0) - min(guess[:dealt], default=0) <= 1 and not any(guess[dealt:])
        assert split[0].tiles(), "the reducer has a state to merge into"
        busy = flash.busy_with_guess(len(ends), workers)
        together = [tiles + own for tiles, own in zip(rest, busy, strict=True)]
        if sum(together) >= (busy[0] + 1) * workers:
            assert max(together) - min(together) <= 1 and (dealt == 0 or min(rest) > 0)
        else:
            idle = next((worker for worker, tiles in enumerate(rest) if tiles), workers)
            assert idle in (1, dealt, workers) and max(rest[idle:], default=0) - min(rest[idle:], default=0) <= 1
        assert max(len(part.tiles()) for part in split) <= most_tiles(total, workers, flash.FEW_TILES)


def test_a_guess_is_shared_until_shares_are_few_tiles():
    """One worker reads five tiles sooner than two read half of them and merge."""
    assert [flash.workers_of_guess(tiles, 8) for tiles in (0, 1, 2, 5, 6, 8, 9, 10, 11, 20, 21, 100)] == [
        *(0, 1, 1, 1, 2, 2, 2, 2, 4, 4, 8, 8)
    ]
    assert [flash.workers_of_guess(100, workers) for workers in (1, 2, 3, 7, 64)] == [1, 2, 3, 7, 32]


def test_workers_that_merge_have_less_of_the_rest():
    """By two tiles for each level of merges; the reducer, which emits the guess, by two more."""
    assert flash.busy_with_guess(2, 1) == [4] and flash.busy_with_guess(8, 2) == [8, 4]
    assert flash.busy_with_guess(64, 8) == [14, 8, 8, 8, 10, 8, 8, 8]
    assert flash.busy_with_guess(8, 4) == [8, 4, 0, 0]

    def rest(tokens: int, end: int, workers: int) -> list[int]:
        return [len(part.middle) for part in parts(tokens, end, end, workers, True)]

    assert rest(32 * 180, 32, 8) == [10, 15, 16, 15, 14, 15, 16, 15]
    assert rest(32 * 64, 4, 7) == [2, 6, 10, 9, 10, 9, 10]
    assert rest(32 * 32, 4, 7) == [0, 0, 5, 5, 5, 4, 5], "they have enough with the guess"
    assert rest(32 * 70, 32, 8) == [0, 1, 1, 1, 1, 1, 1, 0], "too little for all"


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 31])
def test_the_workers_of_a_guess_share_it_alone(workers):
    for tokens, (first, tail) in product(TOKENS, ((1, 1), (1, 2), (4, 2), (16, 17), (60, 60))):
        total = -(-tokens // 32)
        split = parts(tokens, first, tail, workers, False, guess_alone=True)
        read = sorted(tile for part in split for tile in part.tiles())
        assert read == sorted({*range(min(first, total)), *range(max(total - tail, 0), total)})
        loads = [len(part.tiles()) for part in split][: flash.workers_of_guess(len(read), workers)]
        assert max(loads) - min(loads) <= 1 and loads[0] == max(loads) and sum(loads) == len(read)


@pytest.mark.parametrize("guess_range", RANGES, ids=str)
def test_guesses_read_the_keys_of_the_reference(guess_range):
    """The guess reads the tiles that the reference's positions lie in, and no others."""
    for tokens in range(guess_range.bypass_below, guess_range.bypass_below + 100):
        seen = guess_positions(tokens - 1, 32, guess_range=guess_range).nonzero().flatten().tolist()
        part = parts(tokens, guess_range.first_tiles, guess_range.tail_tiles(tokens), 1, True)[0]
        read = {32 * tile + i for tile in (*part.first, *part.last) for i in range(32)}
        assert set(seen) == {at for at in read if at < tokens}, tokens
        in_tail = len([at for at in seen if at >= tokens - guess_range.last])
        assert in_tail == guess_range.last or not guess_range.whole_tail, tokens


def test_the_kernels_split_is_the_hosts(tmp_path):
    body = r"""
        const attention::GuessRange guess{uint32_t(in[1]), uint32_t(in[2]), in[3] != 0};
        const attention::Ends ends = in[6] ? attention::Ends(in[0], guess) : attention::Ends(in[0]);
        const attention::EvenSplit split(ends, in[5]);
        const auto has = [&](const attention::Range& of) { return of.begin <= in[4] && in[4] < of.end; };
        const auto p = split.part(in[4]);
        const attention::Range ranges[] = {p.first, p.last, p.middle};
        for (const auto& range : ranges) std::printf("%u %u ", range.begin, range.end);
        std::printf("%u %u %u %u", attention::needs_mask(p, in[0]), guess.bypassed(in[0]),
                    has(split.with_guess()), has(split.with_rest()));
    """
    cases = [
        (tokens, guess, worker, count, speculate)
        for tokens, guess, count, speculate in product(TOKENS, RANGES, (1, 2, 3, 7, 31), (0, 1))
        for worker in range(count)
    ]
    given = [(t, g.first_tiles, g.last_tiles, int(g.whole_tail), *rest) for t, g, *rest in cases]
    for case, found in zip(cases, run_header(tmp_path, f"{KERNELS}/chunk_split.hpp", 7, body, given), strict=True):
        tokens, guess, worker, count, speculate = case
        part = parts(tokens, guess.first_tiles, guess.tail_tiles(tokens), count, bool(speculate))[worker]
        *ends, masked, bypassed, has_guess, has_rest = found
        for begin, end, expected in zip(ends[::2], ends[1::2], (part.first, part.last, part.middle), strict=True):
            assert list(range(begin, end)) == list(expected), case
        assert bool(masked) == (tokens % 32 != 0 and tokens // 32 in part.tiles()), case
        assert bool(bypassed) == (tokens < guess.bypass_below), case
        assert (bool(has_guess), bool(has_rest)) == (bool(part.guess), bool(part.middle)), case


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
    """Whatever parts are empty, every worker that has one is merged into worker 0 once."""
    tree = {worker: merge_tree.senders_to(worker, workers) for worker in range(workers)}
    assert sorted(sender for senders in tree.values() for sender in senders) == list(range(1, workers))
    assert all(merge_tree.parent_of(sender) == worker for worker, senders in tree.items() for sender in senders)
    assert merge_tree.levels(workers) == math.ceil(math.log(workers, 4))
    assert merge_tree.slots(workers) == len(tree[0]) <= 3 * merge_tree.levels(workers)
    assert merge_tree.receiving_levels(0, workers) == merge_tree.levels(workers)
    for seed in range(20):
        has = (torch.rand(workers, generator=torch.Generator().manual_seed(seed)) < 0.5).tolist()
        holds: dict[int, list[int]] = {}
        for worker in reversed(range(workers)):  # senders come behind their receivers
            sources = [slot for slot, sender in enumerate(tree[worker]) if holds[sender]]
            assert merge_tree.sources_of(worker, has) == sources
            received = [part for sender in tree[worker] for part in holds[sender]]
            holds[worker] = [worker] * has[worker] + received
        assert holds[0] == [worker for worker, own in enumerate(has) if own]


def test_the_kernels_merge_tree_is_the_hosts(tmp_path):
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
        ranges = [(begin, end) for begin in range(workers + 1) for end in range(begin, workers + 1)]
        sources = [
            sum(1 << slot for slot in merge_tree.sources_of(worker, [begin <= w < end for w in range(workers)]))
            for begin, end in ranges
        ]
        assert found == [merge_tree.slots(workers), slot, parent, *merge_tree.senders_to(0, workers), *sources]


# ------------------------------------------------------------------------------ cores and L1: decoding


def flash_layout(problem=LLAMA, l1_free=N150_L1, cores=GRID, speculate=True, exchange=(7, 7), **options):
    peer = exchange is not None
    return flash.choose_work_split(
        problem, tuple(cores), l1_free, speculate=speculate, peer=peer, exchange=exchange, **options
    )


@pytest.mark.parametrize("items, workers, groups", [(8, 7, 8), (2, 31, 2), (64, 1, 62), (40, 6, 10)])
def test_decodings_cores_are_dealt_to_groups_of_heads(items, workers, groups):
    plan = assign_cores(GRID[:-2], items, workers, (6, 7), (7, 7))
    assert len(plan.groups) == groups and plan.workers_per_group == workers
    assert len(set(plan.cores)) == len(plan.cores) == groups * workers + 2


@pytest.mark.parametrize("speculate", [True, False])
@pytest.mark.parametrize("cache_dtype", ["BFLOAT8_B", "BFLOAT16"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("kv_heads", [1, 2, 8])
def test_decodings_defaults_serve_every_shape(kv_heads, head_dim, cache_dtype, speculate):
    """Also one head of 128 that 62 workers can share, each with slots for 6 partial results."""
    for users, max_tokens, chunk_size in product((1, 8), (1024, 131072), (32, 1024)):
        problem = flash_checks.Problem(users, 4 * kv_heads, kv_heads, head_dim, max_tokens, cache_dtype, chunk_size)
        found = flash_layout(problem, speculate=speculate, exchange=(7, 7) if speculate else None)
        assert max(l1_bytes(found.buffers).values()) <= N150_L1
        chunks = problem.max_tokens / 32 / found.assignment.workers_per_group / found.key_tiles
        assert found.key_tiles <= problem.chunk_size // 32 or chunks > MAX_CHUNKS / 2
        if max_tokens == 131072:
            groups = len(found.assignment.groups)
            assert groups == min(problem.items, 62) or groups * found.assignment.workers_per_group >= 40


@pytest.mark.parametrize("users", [1, 8])
@pytest.mark.parametrize("chunk_size", [128, 256, 512])
@pytest.mark.parametrize("kv_heads", [8, 4, 2])
def test_llama_fits_l1_at_every_chunk_size(kv_heads, chunk_size, users):
    """With bfloat8_b caches whole chunks of keys at once, on the whole grid, and so many that a worker goes through
    the 128K tokens in 64 chunks."""
    problem = replace(LLAMA, users=users, kv_heads=kv_heads, query_heads=4 * kv_heads, chunk_size=chunk_size)
    found = flash_layout(problem)
    assert len(set(found.assignment.cores)) >= 58 and found.key_tiles % (chunk_size // 32) == 0
    assert found.key_tiles * found.assignment.workers_per_group * MAX_CHUNKS >= 4096
    assert flash_layout(replace(problem, max_tokens=8192)).key_tiles == chunk_size // 32


@pytest.mark.parametrize(
    "query_heads, kv_heads, rows",
    [(32, 8, 32), (20, 5, 32), (16, 4, 16), (4, 1, 16), (1, 1, 16), (12, 1, 16), (13, 1, 32), (16, 1, 32), (16, 2, 16)],
)
def test_rows_that_are_computed_hold_all_heads_and_probes(query_heads, kv_heads, rows):
    """Probes are two rows, in a band of four without the head's: before it or, where it is the first, behind it."""
    found = flash_layout(replace(LLAMA, query_heads=query_heads, kv_heads=kv_heads)).buffers
    heights = {name: buffer.tile_rows for name, buffer in found.items() if buffer.dtype != "UINT32"}
    whole = {"cb_keys", "cb_values", "cb_mask", "cb_ones", "cb_norms", "cb_outgoing"}
    assert {name: height for name, height in heights.items() if name in whole} == dict.fromkeys(whole, 32)
    assert {height for name, height in heights.items() if name not in whole} == {rows}
    pages = {name: buffer.page_bytes for name, buffer in found.items() if name not in ("cb_keys", "cb_values")}
    assert pages["cb_state"] == 4096 and pages["cb_query"] == 2048, "rows have their places whatever is computed"


def test_decodings_layouts_that_cannot_be_are_refused():
    two = GRID[:2]
    assert flash_layout(cores=two[:1], speculate=False, exchange=None).assignment.workers == [(0, 0)]
    assert flash_layout(cores=two, exchange=None).assignment.decider == (1, 0)
    wide = replace(LLAMA, cache_dtype="BFLOAT16", chunk_size=2048)
    needed = l1_bytes(flash.make_buffers(wide, 7, 64, speculate=True, peer=True))[WORKER]
    assert flash_layout(wide, needed, workers_per_head=7, key_chunk=2048).key_tiles == 64
    refused = [
        ({"cores": two, "exchange": (1, 0)}, "1 worker(s) per head and 1 output core(s) need 2 cores, .* 1 for them"),
        ({"cores": GRID[:4], "workers_per_head": 5}, "need 6 cores, the grid has 4"),
        ({"l1_free": 60_000}, "key_chunk 32 .* 1 worker.* of which 60000 are free"),
        (
            {"problem": wide, "l1_free": needed - 1, "workers_per_head": 7, "key_chunk": 2048},
            f"key_chunk 2048 .* 7 worker.* needs {needed} bytes .* {needed - 1} are free",
        ),
    ]
    for workers in (0, -1, 2.0, 2.5, True, "2"):
        refused.append(({"workers_per_head": workers}, f"workers_per_head must .* at least 1, got {workers!r}"))
    for chunk in (0, 16, 100, 262144, -32, 64.0, True):
        refused.append(({"key_chunk": chunk}, f"from 32 to the 131072 tokens of the caches, got {chunk!r}"))
    for options, message in refused:
        with pytest.raises(UnsupportedError, match=message.replace("(s)", r"\(s\)")):
            flash_layout(**options)


# ------------------------------------------------------------------------------ cores and L1: trees


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("cache", ["BFLOAT16", "BFLOAT8_B"])
@pytest.mark.parametrize("nodes", [1, 16, 64, tree_checks.MAX_NODES])
@pytest.mark.parametrize("users, heads, kv_heads", [(1, 32, 8), (8, 32, 8), (8, 4, 1), (1, 16, 1)])
def test_trees_defaults_serve_every_shape(head_dim, cache, nodes, users, heads, kv_heads):
    problem = tree_checks.Problem(users, heads, kv_heads, head_dim, 131072, cache, nodes)
    layout = trees.choose_work_split(problem, GRID, N150_L1)
    assert l1_bytes(layout.buffers)[WORKER] <= N150_L1
    assert layout.query_tiles * layout.passes >= problem.query_tiles
    workers = layout.assignment.workers
    assert len(set(workers)) == len(workers) <= len(GRID)
    assert len(layout.assignment.groups) <= problem.items * layout.passes


def test_less_l1_takes_more_passes_or_fewer_keys():
    plenty = trees.choose_work_split(replace(LLAMA_TREE, nodes=256), GRID[:8], N150_L1)
    little = trees.choose_work_split(replace(LLAMA_TREE, nodes=256), GRID[:8], 400_000)
    assert plenty.query_tiles > little.query_tiles and l1_bytes(little.buffers)[WORKER] <= 400_000
    least = trees.choose_work_split(LLAMA_TREE, GRID, 150_000)
    assert least.key_tiles < plenty.key_tiles
    with pytest.raises(UnsupportedError, match=r"need \d+ bytes of L1 on a core, of which 9000 are free \(largest"):
        trees.choose_work_split(LLAMA_TREE, GRID, 9000)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"workers_per_head": 65}, "65 workers per head need 65 cores, the grid has 64"),
        ({"workers_per_head": 0}, "workers_per_head must be an integer of at least 1, got 0"),
        ({"query_tiles": 9}, "query_tiles must be from 1 to the 8 that 64 nodes of 4 query heads take, got 9"),
        ({"query_tiles": 1.5}, "query_tiles must be from 1 to the 8"),
        ({"key_chunk": 48}, "key_chunk must be a multiple of 32 from 32 to the 131072 tokens of the caches, got 48"),
        ({"key_chunk": 8192}, "query_tiles 1 and key_chunk 8192 with head_dim 128 and 1 worker(s) per head need"),
    ],
)
def test_layouts_of_trees_that_are_not_supported_are_refused(options, message):
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        trees.choose_work_split(LLAMA_TREE, GRID, N150_L1, **options)


def test_the_deciding_core_and_the_exchange_core_are_no_workers():
    """The first is the last core of the grid that is left, unless a TP group names it."""
    guessed = replace(LLAMA_TREE, guess=GuessRange.both_ends(128))
    alone, pair, group = (
        trees.choose_work_split(guessed, GRID, N150_L1, **fixed).assignment
        for fixed in ({}, {"exchange": GRID[-1]}, {"exchange": GRID[-1], "decider": GRID[0]})
    )
    assert alone.decider == GRID[-1] and alone.exchange is None
    assert (pair.decider, pair.exchange) == (GRID[-2], GRID[-1])
    assert group.by_role[DECIDER] == [GRID[0]] and group.by_role[EXCHANGE] == [GRID[-1]]
    for split in (alone, pair, group):
        assert not {split.decider, split.exchange} & set(split.workers)
    with pytest.raises(UnsupportedError, match="1 workers per head need 1 cores, the grid has 0 for them"):
        trees.choose_work_split(guessed, GRID[:1], N150_L1)


@pytest.mark.parametrize("nodes", [1, 16, 64])
@pytest.mark.parametrize("users, max_tokens", [(1, 131072), (8, 8192)])
def test_trees_that_hand_out_masses_do_a_head_at_once(nodes, users, max_tokens):
    problem = replace(
        LLAMA_TREE,
        **{"users": users, "max_tokens": max_tokens, "nodes": nodes},
        guess=GuessRange.both_ends(128),
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


def test_trees_cores_are_dealt_to_groups():
    """8 heads on 64 cores: 8 workers each; with fewer cores than jobs, one each."""
    layout = trees.choose_work_split(replace(LLAMA_TREE, nodes=8), GRID, N150_L1)
    assert (len(layout.assignment.groups), layout.assignment.workers_per_group, layout.query_tiles) == (8, 8, 1)
    busy = trees.choose_work_split(replace(LLAMA_TREE, users=8), GRID, N150_L1, workers_per_head=1)
    assert busy.assignment.workers_per_group == 1
    assert trees.group_sizes(64, 3) == [1, 2, 4, 8, 16, 21, 32, 64] and trees.group_sizes(6, 9) == [1, 2, 3, 4, 6]
    short = tree_checks.Problem(1, 32, 8, 128, 64, "BFLOAT8_B", 8)
    assert trees.choose_work_split(short, GRID, N150_L1).assignment.workers_per_group == 1, (
        "one tile each would only be merged"
    )


# ------------------------------------------------------------------------------ what is refused

Q, CACHE = TensorFacts((1, 2, 32, 128), "BFLOAT16"), TensorFacts((2, 8, 1024, 128), "BFLOAT8_B")
WHERE = TensorFacts((2,), "INT32", "ROW_MAJOR")
FLASH_GIVEN = {"q": Q, "k": CACHE, "v": CACHE, "positions": WHERE, "chunk_size": 128}
TREE_CACHE = TensorFacts((2, 2, 128, 64), "BFLOAT16")
TREE_Q, INTERVALS = TensorFacts((1, 8, 2 * 20, 64), "BFLOAT16"), TensorFacts((2, 2, 20), "INT32", "ROW_MAJOR")
TREE_GIVEN = {"q": TREE_Q, "k": TREE_CACHE, "v": TREE_CACHE, "prefix": WHERE, "intervals": INTERVALS}


def caches(facts: TensorFacts, **changes) -> dict[str, TensorFacts]:
    return dict.fromkeys(("k", "v"), replace(facts, **changes))


def test_the_problem_is_what_the_shapes_say():
    problem = flash_checks.check_problem(*FLASH_GIVEN.values(), GuessRange(32, 96))
    assert problem == flash_checks.Problem(2, 32, 8, 128, 1024, "BFLOAT8_B", 128, GuessRange(32, 96))
    problem = tree_checks.check_problem(*TREE_GIVEN.values())
    assert problem == tree_checks.Problem(2, 8, 2, 64, 128, "BFLOAT16", 20)
    assert (problem.items, problem.group_heads, problem.query_tiles, problem.tree_tiles) == (4, 4, 3, 2)
    assert (replace(problem, nodes=1).tree_tiles, replace(problem, nodes=2).tree_tiles) == (1, 2)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"q": replace(Q, dtype="BFLOAT8_B")}, "q must be BFLOAT16, it is BFLOAT8_B"),
        ({"q": replace(Q, layout="ROW_MAJOR")}, "q must have layout TILE, .*ROW_M"),
        ({"q": replace(Q, on_device=False)}, "q must be on device"),
        ({"k": replace(CACHE, interleaved=False)}, "k must be interleaved, it is sharded"),
        ({"q": replace(Q, shape=(2, 32, 128))}, r"4 dimensions, .*\(2, 32, 128\)"),
        ({"q": replace(Q, shape=(2, 2, 32, 128))}, r"one token per user, .*\(2, 2, 32"),
        ({"v": replace(CACHE, dtype="BFLOAT16")}, "k is BFLOAT8_B .* v is BFLOAT16"),
        (caches(CACHE, dtype="BFLOAT4_B"), "BFLOAT8_B, they are BFLOAT4_B"),
        (caches(CACHE, shape=(4, 8, 1024, 128)), "q has 2 users .* have 4"),
        (caches(CACHE, shape=(2, 8, 1024, 64)), "head_dim 128, .* have 64"),
        (caches(CACHE, shape=(2, 5, 1024, 128)), "32 query heads .* by 5 key"),
        (caches(CACHE, shape=(2, 8, 1000, 128)), "multiple of 32 .* hold 1000"),
        ({"q": replace(Q, shape=(1, 2, 64, 128))}, "1 to 32 query heads .* q has 64"),
        (
            {"q": replace(Q, shape=(1, 2, 32, 96))} | caches(CACHE, shape=(2, 8, 1024, 96)),
            r"one of \(64, 128\), it is 96",
        ),
        (
            {"q": replace(Q, shape=(1, 9, 32, 128))} | caches(CACHE, shape=(9, 8, 1024, 128)),
            "1 to 8 users are supported, there are 9",
        ),
        ({"chunk_size": 100}, "multiple of 32, got 100"),
        ({"chunk_size": 0}, "multiple of 32, got 0"),
        ({"chunk_size": 2048}, "chunk_size 2048 exceeds the 1024 tokens"),
        ({"positions": replace(WHERE, shape=(3,))}, r"INT32 ROW_MAJOR \(2,\), it is .* \(3,\)"),
        ({"positions": replace(WHERE, dtype="UINT32")}, "it is UINT32"),
        ({"positions": replace(WHERE, layout="TILE")}, "it is INT32 TILE"),
        ({"guess": "both ends"}, "guess_range must be a GuessRange, it is a str"),
        ({"guess": GuessRange(48, 64)}, "guess_range.first must be a multiple of 32 from 32 to the 1024 .* got 48"),
        ({"guess": GuessRange(64, 0)}, "guess_range.last must be .* got 0"),
        ({"guess": GuessRange(64, 2048)}, "guess_range.last must be .* got 2048"),
        ({"guess": GuessRange(64, 64, 1)}, "guess_range.whole_tail must be True or False, got 1"),
    ],
)
def test_decodings_unsupported_inputs_are_refused_with_their_values(wrong, message):
    with pytest.raises(UnsupportedError, match=message):
        flash_checks.check_problem(*(FLASH_GIVEN | wrong).values())


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"q": replace(TREE_Q, dtype="BFLOAT8_B")}, "q must be BFLOAT16, it is BFLOAT8_B"),
        ({"q": replace(TREE_Q, shape=(1, 8, 39, 64))}, "2 * 20 = 40 rows, its shape is (1, 8, 39, 64)"),
        ({"q": replace(TREE_Q, shape=(2, 8, 40, 64))}, "2 * 20 = 40 rows, its shape is (2, 8, 40, 64)"),
        ({"q": replace(TREE_Q, shape=(1, 8, 40, 128))}, "q has head_dim 128, the caches have 64"),
        ({"q": replace(TREE_Q, shape=(1, 7, 40, 64))}, "7 query heads cannot be shared evenly by 2"),
        ({"q": replace(TREE_Q, shape=(1, 0, 40, 64))}, "q must have query heads"),
        ({"prefix": replace(WHERE, shape=(3,))}, "prefix must be INT32 ROW_MAJOR (2,), it is INT32 ROW_MAJOR (3,)"),
        ({"prefix": replace(WHERE, on_device=False)}, "prefix must be on device, it is in host memory"),
        ({"intervals": replace(INTERVALS, layout="TILE")}, "intervals must be INT32 ROW_MAJOR (2, 2, nodes)"),
        ({"intervals": replace(INTERVALS, shape=(2, 20, 2))}, "it is INT32 ROW_MAJOR (2, 20, 2)"),
        ({"intervals": replace(INTERVALS, shape=(2, 40))}, "it is INT32 ROW_MAJOR (2, 40)"),
        ({"intervals": replace(INTERVALS, shape=(2, 2, 257))}, "1 to 256 nodes are supported, intervals has 257"),
        (
            {"q": replace(TREE_Q, shape=(1, 8, 80, 64)), "intervals": replace(INTERVALS, shape=(2, 2, 40))}
            | caches(TREE_CACHE, shape=(2, 2, 32, 64)),
            "a tree of 40 nodes exceeds the 32 tokens the caches hold",
        ),
    ],
)
def test_trees_unsupported_inputs_are_refused_with_their_values(wrong, message):
    """What trees alone check, and that they check what both ops do (above)."""
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        tree_checks.check_problem(*(TREE_GIVEN | wrong).values())


def test_numbers_and_names_are_checked():
    assert flash_checks.check_numbers(0.1, None, 64) == (0.1, 0.125)
    for threshold in (-0.1, float("nan"), float("inf"), 1e20, "0.1"):
        with pytest.raises(UnsupportedError, match=re.escape(f"got {threshold!r}")):
            flash_checks.check_numbers(threshold, None, 64)
    for scale in (0, 1e-5, -0.125, 101, 1e20, float("nan"), "1"):
        with pytest.raises(UnsupportedError, match=f"scale must be from 0.0001 to 100, got {re.escape(repr(scale))}"):
            flash_checks.check_numbers(0.1, scale, 64)
    for fidelity, text in (
        ("LoFi", "one of HiFi2, HiFi3, got 'LoFi'"),
        ("HiFi5", "one of HiFi2, HiFi3, got 'HiFi5'"),
        ("HiFi4", "HiFi4 gives single wrong outputs on Wormhole .* issue 38306"),
    ):
        with pytest.raises(UnsupportedError, match=text):
            flash_checks.check_fidelity(fidelity)
    check_gathered(TensorFacts((1, 1, 2, MAX_USERS), "UINT32", "ROW_MAJOR"))
    with pytest.raises(UnsupportedError, match=r"\(1, 1, 2, 32\), .* it is UINT32 ROW_MAJOR \(1, 1, 1, 32\)"):
        check_gathered(TensorFacts((1, 1, 1, MAX_USERS), "UINT32", "ROW_MAJOR"))
