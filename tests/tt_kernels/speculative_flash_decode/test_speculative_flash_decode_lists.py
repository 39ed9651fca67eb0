# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Guesses that read listed tiles between the two ends."""

from __future__ import annotations

import math
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from loguru import logger

from tests.support.pcc import correlation
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import CHIP, guess_body, speculative_body
from tests.tt_kernels.speculative_flash_decode.listed_tiles import CASE, LISTS, POSITIONS, RANGE, list_words
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode.guess_range import GuessRange, check_guess_range
from tt_kernels.speculative_flash_decode.reference import (
    guess_positions,
    sender_priorities,
    speculative_flash_decode_reference,
)
from tt_kernels.speculative_flash_decode.tile_lists import check_tile_lists, list_rows

HEADERS = Path(__file__).parents[3] / "tt_kernels" / "common" / "kernels"
LIMIT_S = 900


def check(name: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    pcc = correlation(found, expected)
    logger.info(f"{name}: PCC {pcc:.6f}, largest error {(found.double() - expected).abs().max().item():.2e}")
    assert found.isfinite().all() and pcc >= 0.999, name


@pytest.mark.sim
@pytest.mark.parametrize("workers", [1, 3])
def test_the_guess_reads_the_listed_tiles_and_nothing_twice(sim_device, workers):
    case = replace(CASE, workers=workers)
    q, k, v = case.random(21)
    runs = [
        {"positions": POSITIONS, "guess_range": RANGE, "lists": each, "priority": 2}
        for each in (list_words(), list_words() * 0)
    ]
    (listed, empty), _ = sim_device(CHIP).run(speculative_body, case, q, k, v, runs, timeout=LIMIT_S)
    for found, tiles in ((listed, LISTS), (empty, None)):
        expected = speculative_flash_decode_reference(
            q, k, v, POSITIONS, chunk_size=32, guess_range=RANGE, listed=tiles
        )
        check("exact", found["exact"], expected.exact)
        check("guess", found["guess"], expected.guess)
        torch.testing.assert_close(found["norm_sq"].double(), expected.norm_sq, rtol=0.01, atol=0)
        torch.testing.assert_close(found["distance_sq"].double(), expected.distance_sq, rtol=0.02, atol=1e-4)
        assert found["priority"] == sender_priorities(
            expected.distance_sq, expected.norm_sq, POSITIONS, chunk_size=32, threshold=0.1, guess_range=RANGE
        )
    assert not torch.equal(listed["guess"], empty["guess"])


@pytest.mark.sim
@pytest.mark.parametrize("workers", [1, 3])
def test_a_guess_alone_reads_nothing_else(sim_device, workers):
    """Keys and values that it does not read are NaN."""
    case = replace(CASE, workers=workers)
    q, k, v = case.random(22)
    dirty = [part.clone() for part in (k, v)]
    for user, position in enumerate(POSITIONS):
        for head in range(case.kv_heads if position >= 0 else 0):
            unread = ~guess_positions(position, 32, guess_range=RANGE, listed=LISTS[user][head])
            for part in dirty:
                part[user, head, : position + 1][unread] = math.nan
    run = {"positions": POSITIONS, "guess_range": RANGE, "lists": list_words()}
    (found,), _ = sim_device(CHIP).run(guess_body, case, q, *dirty, [run], timeout=LIMIT_S)
    expected = speculative_flash_decode_reference(q, k, v, POSITIONS, chunk_size=32, guess_range=RANGE, listed=LISTS)
    check("guess alone", found, expected.guess)
    assert not found[0, 2].any()


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler for this machine")
def test_a_list_is_kept_in_bounds_and_renumbers_the_cache(tmp_path):
    """Whatever the row holds, each tile of the cache has one number, and the listed ones follow the first."""
    source, program = tmp_path / "lists.cpp", tmp_path / "lists"
    source.write_text(
        """
        #include <cstdio>
        #include "tile_list.hpp"
        struct Plain { uint32_t page(uint32_t row) const { return row; } };
        int main() {
            uint32_t tokens, begin, end, limit, total, row[16];
            while (std::scanf("%u %u %u %u %u", &tokens, &begin, &end, &limit, &total) == 5) {
                for (auto& word : row) { std::scanf("%u", &word); }
                const uint32_t kept = tile_list::keep(row, tokens, begin, end, limit);
                const tile_list::Renumbered<Plain> order{{}, row + tile_list::first_tile, begin, kept};
                std::printf("%u", kept);
                for (uint32_t i = 0; i < total; ++i) { std::printf(" %u", order.page(i)); }
                std::printf("\\n");
            }
        }
        """
    )
    subprocess.run(["g++", "-std=c++20", "-O1", f"-I{HEADERS}", str(source), "-o", str(program)], check=True)
    chance = random.Random(0)
    cases, expected = [], []
    for _ in range(500):
        total = chance.randint(1, 40)
        begin = chance.randint(1, total)
        end, limit = chance.randint(begin, total), chance.randint(1, 14)
        tokens = chance.randint(total * 32 - 31, total * 32)
        listed = [chance.choice((chance.randint(0, total + 2), 2**32 - 1)) for _ in range(14)]
        if chance.random() < 0.7:
            listed.sort()
        row = [
            chance.choice((tokens, tokens, tokens, tokens + 1)),
            chance.choice((0, 1, 3, 14, 15, 2**32 - 1)),
            *listed,
        ]
        kept: list[int] = []
        for tile in listed[: row[1]] if row[0] == tokens else []:
            if begin <= tile < end and tile > max(kept, default=-1) and len(kept) < limit:
                kept.append(tile)
        cases.append(" ".join(map(str, (tokens, begin, end, limit, total, *row))))
        rest = [tile for tile in range(begin, total) if tile not in kept]
        expected.append([len(kept), *range(begin), *kept, *rest])
    out = subprocess.run([str(program)], input="\n".join(cases), capture_output=True, text=True, check=True).stdout
    assert [list(map(int, line.split())) for line in out.splitlines()] == expected


LIST_FACTS = TensorFacts((2, 8, 16), "UINT32", "ROW_MAJOR", True, True)


@pytest.mark.parametrize(
    "found, users, kv_heads, tiles, message",
    [
        (None, 2, 8, 3, "belong together"),
        (LIST_FACTS, 2, 8, 0, "belong together"),
        (LIST_FACTS, 2, 4, 3, r"\(2, 4, 16\)"),
        (replace(LIST_FACTS, dtype="INT32"), 2, 8, 3, "INT32"),
        (replace(LIST_FACTS, shape=(4, 32, 16)), 4, 32, 3, "at most 64 .* 4 x 32"),
    ],
)
def test_refused_lists(found, users, kv_heads, tiles, message):
    with pytest.raises(UnsupportedError, match=message):
        check_tile_lists(found, users, kv_heads, tiles)


@pytest.mark.parametrize("tiles", [-1, 15, True])
def test_refused_numbers_of_tiles(tiles):
    with pytest.raises(UnsupportedError, match=f"from 0 to 14, got {tiles}"):
        check_guess_range(GuessRange(32, 32, tiles=tiles), 1024)


def test_lists_of_more_tiles_than_a_row_holds():
    with pytest.raises(ValueError, match="user 0, head 1: 15 tiles"):
        list_rows([640], [[[], list(range(1, 16))]])
