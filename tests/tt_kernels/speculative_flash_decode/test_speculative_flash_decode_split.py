# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How speculative flash decode splits its work: key tiles, heads, the guess, and the merge of partial results."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from tt_kernels.common import merge_tree
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.reference import (
    guess_positions,
)
from tt_kernels.speculative_flash_decode.work_split import assign_cores, cost, parts, speculative_worker

GRID = [(x, y) for y in range(8) for x in range(8)]
HEADERS = Path(__file__).parents[3] / "tt_kernels" / "common" / "kernels"
TOKENS = (1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 256, 257, 1000, 4096)


@pytest.mark.parametrize("speculate", [False, True])
@pytest.mark.parametrize("chunk", [1, 2, 4, 16])
@pytest.mark.parametrize("workers", [1, 2, 3, 7, 31])
def test_parts_cover_the_cache_once_and_evenly(workers, chunk, speculate):
    for tokens in TOKENS:
        total = -(-tokens // 32)
        split = parts(tokens, chunk, chunk, workers, speculate)
        assert sorted(tile for part in split for tile in part.tiles()) == list(range(total))
        guess = {*split[speculative_worker(workers)].first, *split[speculative_worker(workers)].last}
        expected = set(range(min(chunk, total))) | set(range(max(total - chunk, 0), total)) if speculate else set()
        if total > 2 * chunk or not speculate:
            assert guess == expected
        else:
            assert guess == set(range(total))
        middle = [len(part.middle) for part in split]
        assert sum(middle) == 0 or middle[0] > 0, "the reducer must have a state to merge into"
        loads = [len(part.tiles()) for part in split]
        others = [load for worker, load in enumerate(loads) if worker != speculative_worker(workers) or not speculate]
        assert not others or max(others) - min(others) <= 1
        assert max(loads) <= max(-(-total // workers) + 1, len(guess))
        if speculate and workers > 1:  # it also emits the guess, and its partial result comes last
            assert loads[speculative_worker(workers)] <= max(len(guess), min(others))


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 31])
def test_all_workers_share_a_guess_alone(workers):
    for tokens in TOKENS:
        total = -(-tokens // 32)
        for first, tail in ((1, 1), (1, 2), (4, 2), (16, 17)):
            split = parts(tokens, first, tail, workers, False, guess_alone=True)
            read = sorted(tile for part in split for tile in part.tiles())
            assert read == sorted({*range(min(first, total)), *range(max(total - tail, 0), total)})
            loads = [len(part.tiles()) for part in split]
            assert max(loads) - min(loads) <= 1 and loads[0] == max(loads)


PREDICTORS = [
    *(GuessRange.both_ends(32 * tiles) for tiles in (1, 2, 4)),
    *(GuessRange(first, last, whole) for first, last in ((32, 32), (32, 96), (128, 64)) for whole in (False, True)),
]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler for this machine")
def test_the_kernels_split_is_the_hosts(tmp_path):
    source = tmp_path / "split.cpp"
    source.write_text(
        """
        #include <cstdint>
        #include <cstdio>
        #include "chunk_split.hpp"
        int main() {
            unsigned tokens, first, last, whole, worker, workers, speculate, alone;
            while (std::scanf("%u %u %u %u %u %u %u %u", &tokens, &first, &last, &whole, &worker, &workers,
                              &speculate, &alone) == 8) {
                const attention::GuessRange guess{first, last, whole != 0, alone != 0};
                const auto p = attention::part_of(tokens, guess, worker, workers,
                                                  speculate ? workers - 1 : attention::nobody);
                std::printf("%u %u %u %u %u %u %u %u\\n", p.first.begin, p.first.end, p.last.begin, p.last.end,
                            p.middle.begin, p.middle.end, attention::needs_mask(p, tokens) && p.tiles(),
                            guess.bypassed(tokens));
            }
        }
        """
    )
    program = tmp_path / "split"
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Werror", f"-I{HEADERS}", source, "-o", program], check=True)
    cases = [
        (tokens, guess_range, worker, count, *variant)
        for tokens in TOKENS
        for guess_range in PREDICTORS
        for count in (1, 2, 3, 7)
        for variant in ((0, 0), (1, 0), (0, 1))
        for worker in range(count)
    ]
    text = "\n".join(
        f"{tokens} {p.first_tiles} {p.last_tiles} {int(p.whole_tail)} {worker} {count} {speculate} {alone}"
        for tokens, p, worker, count, speculate, alone in cases
    )
    printed = subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    for case, line in zip(cases, printed, strict=True):
        tokens, guess_range, worker, count, speculate, alone = case
        tail = guess_range.tail_tiles(tokens)
        part = parts(tokens, guess_range.first_tiles, tail, count, bool(speculate), bool(alone))[worker]
        *ends, masked, bypassed = map(int, line.split())
        for begin, end, expected in zip(ends[::2], ends[1::2], (part.first, part.last, part.middle), strict=True):
            assert list(range(begin, end)) == list(expected), case
        assert bool(masked) == (tokens % 32 != 0 and tokens // 32 in part.tiles()), case
        assert bool(bypassed) == (tokens < guess_range.bypass_below), case


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 7, 8, 31, 62])
def test_the_merge_tree_takes_logarithmically_many_steps(workers):
    """Whatever parts are empty, every worker that has one is merged into worker 0 once, in one step a level."""
    assert merge_tree.levels(workers) == math.ceil(math.log2(workers))
    for seed in range(20):
        has = (torch.rand(workers, generator=torch.Generator().manual_seed(seed)) < 0.5).tolist()
        holds: list[list[int]] = [[worker] if own else [] for worker, own in enumerate(has)]
        for level in range(merge_tree.levels(workers)):
            for worker in range(workers):
                sends = worker > 0 and merge_tree.level_of(worker) == level and holds[worker]
                receiver = merge_tree.parent_of(worker)
                assert worker == 0 or merge_tree.level_of(worker) != level or worker == receiver + (1 << level)
                if sends:
                    assert level in merge_tree.sources_of(receiver, has)
                    holds[receiver] += holds[worker]
                elif worker > 0 and merge_tree.level_of(worker) == level:
                    assert level not in merge_tree.sources_of(receiver, has)
        assert holds[0] == [worker for worker, own in enumerate(has) if own]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler for this machine")
def test_the_kernels_merge_tree_is_the_hosts(tmp_path):
    source = tmp_path / "tree.cpp"
    source.write_text(
        """
        #include <cstdio>
        #include "merge_tree.hpp"
        int main() {
            unsigned worker, workers, parts;
            while (std::scanf("%u %u %u", &worker, &workers, &parts) == 3) {
                const auto has = [&](uint32_t other) { return (parts >> other & 1) != 0; };
                std::printf("%u %u %u %u\\n", merge_tree::levels(workers), merge_tree::level_of(worker),
                            merge_tree::parent_of(worker), merge_tree::sources_of(worker, workers, has));
            }
        }
        """
    )
    program = tmp_path / "tree"
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Werror", f"-I{HEADERS}", source, "-o", program], check=True)
    cases = [
        (worker, workers, held)
        for workers in (1, 2, 3, 5, 7, 8)
        for worker in range(workers)
        for held in range(1 << workers)
    ]
    text = "\n".join(" ".join(map(str, case)) for case in cases)
    printed = subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    for (worker, workers, held), line in zip(cases, printed, strict=True):
        has = [bool(held >> other & 1) for other in range(workers)]
        levels, level, parent, sources = map(int, line.split())
        assert levels == merge_tree.levels(workers)
        if worker > 0:
            assert (level, parent) == (merge_tree.level_of(worker), merge_tree.parent_of(worker))
        assert [s for s in range(levels) if sources >> s & 1] == merge_tree.sources_of(worker, has)


@pytest.mark.parametrize("guess_range", PREDICTORS, ids=str)
def test_guesses_read_the_keys_of_the_reference(guess_range):
    """The worker of the guess reads the tiles that the reference's positions lie in, and no others."""
    ends = GuessRange(guess_range.first, guess_range.last, guess_range.whole_tail)
    for tokens in range(guess_range.bypass_below, guess_range.bypass_below + 100):
        seen = guess_positions(tokens - 1, 32, guess_range=ends).nonzero().flatten().tolist()
        part = parts(tokens, guess_range.first_tiles, guess_range.tail_tiles(tokens), 1, True)[0]
        read = {32 * tile + i for tile in (*part.first, *part.last) for i in range(32)}
        assert set(seen) == {at for at in read if at < tokens}, tokens
        in_tail = len([at for at in seen if at >= tokens - guess_range.last])
        assert in_tail == guess_range.last or not guess_range.whole_tail, tokens


@pytest.mark.parametrize("items, workers, groups", [(8, 7, 8), (2, 31, 2), (64, 1, 62), (40, 6, 10)])
def test_cores_are_dealt_to_groups_of_heads(items, workers, groups):
    plan = assign_cores(GRID, items, workers, speculate=True, exchange=(7, 7))
    assert len(plan.groups) == groups and plan.workers_per_group == workers
    assert plan.exchange == (7, 7) and plan.output == (6, 7)
    assert len(set(plan.cores)) == len(plan.cores) == groups * workers + 2


def test_the_cost_charges_merging_chunks_and_rounds_of_heads():
    shape = {"items": 8, "groups": 8, "workers": 4, "guess_tiles": 8, "key_tiles": 4, "speculate": True}

    def takes(tiles=64, **other):
        return cost(tiles, **(shape | other))

    assert takes(groups=4) == 2 * takes()
    assert takes(key_tiles=1) > takes(key_tiles=2) > takes()
    assert takes(tiles=4096, workers=62) < takes(tiles=4096, workers=31)
    assert takes(workers=62) > takes(workers=7), "merging costs more than sharing 64 tiles saves"
    assert takes(tiles=16, workers=4) > takes(tiles=16, workers=2), "the guess takes half of 16 tiles anyhow"
    assert takes(tiles=16, workers=4, speculate=False) < takes(tiles=16, workers=2, speculate=False)
