# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The heaviest tiles of masses, against the reference's choice."""

from __future__ import annotations

import random

import pytest
import torch

from models.llama31_8b.reference.alspec.budget import tiles_by_budget
from tests.support.host_kernels import run_header
from tests.support.run_op import Call, refusals, run_op, words
from tests.tt_kernels.attention import CHIP
from tt_kernels.speculative_flash_decode.guess_range import GuessRange, chosen_rows
from tt_kernels.tile_selection.op import MOST_TILES

OP = "tt_kernels.tile_selection.op:select_tiles"
RANGE, TILES = GuessRange(32, 64, whole_tail=True), 3


def expected_tiles(masses, limit: int, first: int, end: int) -> list[int]:
    chosen = tiles_by_budget(torch.tensor(masses, dtype=torch.float64), 1.0, first, torch.tensor(end), limit)
    return chosen.nonzero().flatten().tolist()


def test_the_kernel_chooses_as_the_reference_does(tmp_path):
    """Equal tile for tile: ties by the lower number, none without mass, fewer tiles than asked for."""
    body = r"""
        Heaviest found(in[0]);
        for (Number i = 0, mass; i < in[2]; ++i) {
            if (std::scanf("%llu", &mass) != 1) return 1;
            found.offer(in[1] + i, mass);
        }
        found.for_each([](uint32_t tile) { std::printf("%u ", tile); });
    """
    draw = random.Random(3)
    # Ties, zeros, one hot tile and whole words.
    kinds = [lambda: draw.randrange(2), lambda: draw.randrange(4), lambda: draw.randrange(2**32), lambda: 0]
    kinds += [lambda: draw.choice([1, 2**32 - 1, 2**31])]
    cases = []
    for number in range(1000):
        masses = [kinds[number % len(kinds)]() for _ in range(draw.randrange(41))]
        cases.append((draw.randrange(1, MOST_TILES + 1), draw.randrange(6), len(masses), *masses))
    found = run_header(tmp_path, "tt_kernels/tile_selection/kernels/heaviest.hpp", 3, body, cases)
    for (limit, begin, count, *masses), tiles in zip(cases, found, strict=True):
        assert sorted(tiles) == expected_tiles([0] * begin + masses, limit, begin, begin + count)


@pytest.mark.sim
def test_bitmaps_of_all_layers_are_the_references(sim_device):
    """Users at different positions: one with fewer tiles than the guess reads, one skipped, one past the cache."""
    layers, users, heads, tiles = 2, 5, 2, 16
    at = [511, 200, 60, -1, 5000]
    chance = random.Random(5)
    masses = [chance.choice([0, 1, 5, chance.randrange(2**31)]) for _ in range(layers * users * heads * tiles)]
    masses = torch.tensor(masses).view(layers, users, heads, tiles)
    masses[1, 0] = 0
    before = torch.full((users, heads, 8), 9)
    chosen = [words(before, "uint32", read=f"layer {layer}") for layer in range(layers)]
    given = ([words(layer, "uint32") for layer in masses], chosen, words(at), RANGE)
    found = run_op(sim_device(CHIP), OP, *given, tiles=TILES)
    for layer in range(layers):
        for user, position in enumerate(at):
            for head in range(heads):
                row = found[f"layer {layer}"][user, head].tolist()
                if position < 0:
                    assert row == [9] * 8
                    continue
                tokens = min(position + 1, 32 * tiles)
                end = max(-(-tokens // 32) - RANGE.tail_tiles(tokens), RANGE.first_tiles)
                right = expected_tiles(masses[layer, user, head].tolist(), TILES, RANGE.first_tiles, end)
                assert row == chosen_rows([[right]], 32 * tiles).flatten().tolist(), (layer, user, head)
    assert not found["layer 1"][0].any(), "masses of zero choose nothing"


@pytest.mark.sim
def test_what_does_not_fit_together_is_refused(sim_device):
    def zeros(*shape: int, dtype: str = "uint32"):
        return words(torch.zeros(shape), dtype)

    good = (GuessRange(32, 32), 2)
    masses, chosen, at = zeros(2, 1, 9), zeros(2, 1, 8), zeros(2, dtype="int32")
    refused = {
        "got 0 and 0": ([], [], at, *good),
        "got 1 and 2": ([masses], [chosen, chosen], at, *good),
        "(2, 1, 9)": ([masses, zeros(2, 1, 4)], [chosen, chosen], at, *good),
        "(2, 1, 8)": ([masses], [zeros(2, 1, 16)], at, *good),
        "(2,)": ([masses], [chosen], zeros(1, dtype="int32"), *good),
        "from 1 to 14, got 0": ([masses], [chosen], at, good[0], 0),
        "from 1 to 14, got 15": ([masses], [chosen], at, good[0], 15),
        "288 tokens": ([masses], [chosen], at, GuessRange(32, 512), 2),
    }
    calls = {said: Call(OP, *given, tiles=tiles) for said, (*given, tiles) in refused.items()}
    found = refusals(sim_device(CHIP), calls)
    for said, message in found.items():
        assert message.startswith("UnsupportedError: ") and said in message
