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
from tt_kernels.speculative_flash_decode.guess_range import MAX_TILES, GuessRange, list_rows

OP = "tt_kernels.tile_selection.op:select_tiles"
RANGE = GuessRange(32, 64, whole_tail=True, tiles=3)


def expected_tiles(masses, limit: int, first: int, end: int) -> list[int]:
    chosen = tiles_by_budget(torch.tensor(masses, dtype=torch.float64), 1.0, first, torch.tensor(end), limit)
    return chosen.nonzero().flatten().tolist()


def test_the_kernel_chooses_as_the_reference_does(tmp_path):
    """Equal tile for tile: ties by the lower number, none without mass, fewer tiles than asked for."""
    body = r"""
        tile_list::Heaviest found(in[1]);
        for (Number i = 0, mass; i < in[3]; ++i) {
            if (std::scanf("%llu", &mass) != 1) return 1;
            found.offer(in[2] + i, mass);
        }
        uint32_t row[16] = {};
        found.write(row, in[0]);
        for (uint32_t word : row) std::printf("%u ", word);
    """
    draw = random.Random(3)
    # Ties, zeros, one hot tile and whole words.
    kinds = [lambda: draw.randrange(2), lambda: draw.randrange(4), lambda: draw.randrange(2**32), lambda: 0]
    kinds += [lambda: draw.choice([1, 2**32 - 1, 2**31])]
    cases = []
    for number in range(1000):
        masses = [kinds[number % len(kinds)]() for _ in range(draw.randrange(41))]
        cases.append((77, draw.randrange(1, MAX_TILES + 1), draw.randrange(6), len(masses), *masses))
    found = run_header(tmp_path, "tt_kernels/common/kernels/tile_list.hpp", 4, body, cases)
    for (tokens, limit, begin, count, *masses), row in zip(cases, found, strict=True):
        expected = expected_tiles([0] * begin + masses, limit, begin, begin + count)
        assert row[: 2 + len(expected)] == [tokens, len(expected), *expected]


@pytest.mark.sim
def test_lists_of_all_layers_are_the_references(sim_device):
    """Users at different positions: one with fewer tiles than the guess reads, one skipped, one past the cache."""
    layers, users, heads, tiles = 2, 5, 2, 16
    at = [511, 200, 60, -1, 5000]
    chance = random.Random(5)
    masses = [chance.choice([0, 1, 5, chance.randrange(2**31)]) for _ in range(layers * users * heads * tiles)]
    masses = torch.tensor(masses).view(layers, users, heads, tiles)
    masses[1, 0] = 0
    before = torch.full((users, heads, 16), 9)
    lists = [words(before, "uint32", read=f"layer {layer}") for layer in range(layers)]
    found = run_op(sim_device(CHIP), OP, [words(layer, "uint32") for layer in masses], lists, words(at), RANGE)
    for layer in range(layers):
        for user, position in enumerate(at):
            for head in range(heads):
                row = found[f"layer {layer}"][user, head].tolist()
                if position < 0:
                    assert row == [9] * 16
                    continue
                tokens = min(position + 1, 32 * tiles)
                end = max(-(-tokens // 32) - RANGE.tail_tiles(tokens), RANGE.first_tiles)
                listed = expected_tiles(masses[layer, user, head].tolist(), RANGE.tiles, RANGE.first_tiles, end)
                right = list_rows([tokens], [[listed]]).flatten().tolist()
                assert row[: 2 + len(listed)] == right[: 2 + len(listed)], (layer, user, head)
    assert (found["layer 1"][0, :, 1] == 0).all(), "masses of zero list nothing"


@pytest.mark.sim
def test_what_does_not_fit_together_is_refused(sim_device):
    def zeros(*shape: int, dtype: str = "uint32"):
        return words(torch.zeros(shape), dtype)

    good = GuessRange(32, 32, tiles=2)
    masses, lists, at = zeros(2, 1, 8), zeros(2, 1, 16), zeros(2, dtype="int32")
    refused = {
        "got 0 and 0": ([], [], at, good),
        "got 1 and 2": ([masses], [lists, lists], at, good),
        "(2, 1, 8)": ([masses, zeros(2, 1, 4)], [lists, lists], at, good),
        "(2, 1, 16)": ([masses], [zeros(2, 1, 8)], at, good),
        "(2,)": ([masses], [lists], zeros(1, dtype="int32"), good),
        "without tiles": ([masses], [lists], at, GuessRange(32, 32)),
        "256 tokens": ([masses], [lists], at, GuessRange(32, 512, tiles=2)),
    }
    found = refusals(sim_device(CHIP), {said: Call(OP, *given) for said, given in refused.items()})
    for said, message in found.items():
        assert message.startswith("UnsupportedError: ") and said in message
