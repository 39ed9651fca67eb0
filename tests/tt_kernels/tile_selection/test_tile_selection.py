# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The heaviest tiles of masses, against the reference's choice."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llama31_8b.reference.alspec.followed import heaviest_tiles
from tests.tt_kernels.tile_selection.selection_programs import CHIP, refused_body, selection_body
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.tile_lists import MAX_TILES, list_rows

HEADERS = Path(__file__).parents[3] / "tt_kernels" / "common" / "kernels"
LIMIT_S = 600
RANGE = GuessRange(32, 64, whole_tail=True, tiles=3)

# Ties, zeros, one hot tile and whole words.
MASSES = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1)), max_size=40)


def expected_tiles(masses, limit: int, first: int, end: int) -> list[int]:
    chosen = heaviest_tiles(torch.tensor(masses, dtype=torch.float64), limit, first, torch.tensor(end))
    return chosen.nonzero().flatten().tolist()


@pytest.fixture(scope="module")
def choose(tmp_path_factory):
    """choose(cases): the rows that the kernel's code writes for each (tokens, limit, begin, masses)."""
    folder = tmp_path_factory.mktemp("selection")
    source, program = folder / "choose.cpp", folder / "choose"
    source.write_text(
        """
        #include <cstdio>
        #include "tile_list.hpp"
        int main() {
            uint32_t tokens, limit, begin, count, mass;
            while (std::scanf("%u %u %u %u", &tokens, &limit, &begin, &count) == 4) {
                tile_list::Heaviest found(limit);
                for (uint32_t i = 0; i < count; ++i) { std::scanf("%u", &mass); found.offer(begin + i, mass); }
                uint32_t row[16] = {};
                found.write(row, tokens);
                for (uint32_t word : row) { std::printf("%u ", word); }
                std::printf("\\n");
            }
        }
        """
    )
    if shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler for this machine")
    subprocess.run(["g++", "-std=c++20", "-O1", f"-I{HEADERS}", str(source), "-o", str(program)], check=True)

    def run(cases):
        lines = "\n".join(" ".join(map(str, [t, limit, b, len(m), *m])) for t, limit, b, m in cases)
        found = subprocess.run([str(program)], input=lines, capture_output=True, text=True, check=True).stdout
        return [[int(word) for word in line.split()] for line in found.splitlines()]

    return run


@settings(max_examples=200, deadline=None)
@given(masses=MASSES, limit=st.integers(1, MAX_TILES), begin=st.integers(0, 5))
def test_the_kernel_chooses_as_the_reference_does(choose, masses, limit, begin):
    """Equal tile for tile: ties by the lower number, none without mass, fewer tiles than asked for."""
    expected = expected_tiles([0] * begin + masses, limit, begin, begin + len(masses))
    (row,) = choose([(77, limit, begin, masses)])
    assert row[:2] == [77, len(expected)]
    assert row[2 : 2 + len(expected)] == expected


@pytest.mark.sim
def test_lists_of_all_layers_are_the_references(sim_device):
    """Users at different positions: one with fewer tiles than the guess reads, one skipped, one past the cache."""
    layers, users, heads, tiles = 2, 5, 2, 16
    positions = [511, 200, 60, -1, 5000]
    chance = random.Random(5)
    masses = torch.tensor(
        [chance.choice([0, 1, 5, chance.randrange(2**31)]) for _ in range(layers * users * heads * tiles)]
    ).view(layers, users, heads, tiles)
    masses[1, 0] = 0
    before = torch.full((layers, users, heads, 16), 9, dtype=torch.int32)
    found = sim_device(CHIP).run(selection_body, masses, before, positions, RANGE, timeout=LIMIT_S)
    for layer in range(layers):
        for user, position in enumerate(positions):
            for head in range(heads):
                row = found[layer, user, head].tolist()
                if position < 0:
                    assert row == [9] * 16
                    continue
                tokens = min(position + 1, 32 * tiles)
                end = max(-(-tokens // 32) - RANGE.tail_tiles(tokens), RANGE.first_tiles)
                listed = expected_tiles(masses[layer, user, head].tolist(), RANGE.tiles, RANGE.first_tiles, end)
                words = list_rows([tokens], [[listed]]).flatten().tolist()
                assert row[: 2 + len(listed)] == words[: 2 + len(listed)], (layer, user, head)
    assert (found[1, 0, :, 1] == 0).all(), "masses of zero list nothing"


@pytest.mark.sim
def test_what_does_not_fit_together_is_refused(sim_device):
    assert sim_device(CHIP).run(refused_body, timeout=LIMIT_S) == []
