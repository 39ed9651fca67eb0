# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The tiles that a budget of masses reads, against the reference's choice."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llama31_8b.reference.alspec.budget import tiles_by_budget
from tests.support.host_kernels import run_header
from tests.support.run_op import Call, check_refused, run_op, words
from tests.tt_kernels.attention import CHIP
from tt_kernels.speculative_flash_decode.guess_range import GuessRange, chosen_rows
from tt_kernels.tile_selection.reference import PART, chosen_tiles, unread_part

OP = "tt_kernels.tile_selection.op:select_tiles"
RANGE, BUDGET = GuessRange(32, 64, whole_tail=True), 0.75


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([0, 0, 1, 2, 5, 5, 2**20, 2**32 - 1]), min_size=1, max_size=12),
    st.sampled_from([1 / PART, 0.25, 0.5, 0.75, 1 - 1 / PART]),
    st.integers(0, 5),
    st.integers(0, 12),
)
def test_integers_choose_as_the_model_does(masses, budget, begin, end):
    """Ties, zeros, one hot tile, all chosen, none. These budgets and sums are exact in both."""
    end = min(end, len(masses))
    found = tiles_by_budget(torch.tensor(masses, dtype=torch.float64), budget, begin, torch.tensor(end))
    assert chosen_tiles(masses, budget, min(begin, end), end) == found.nonzero().flatten().tolist()


def test_the_kernel_chooses_as_the_reference_does(tmp_path):
    """Equal tile for tile, whatever the words hold, and as many as there can be."""
    body = r"""
        static uint32_t masses[4096], near[4096];
        uint32_t bits[128] = {};
        for (Number i = 0, mass; i < in[3]; ++i) {
            if (std::scanf("%llu", &mass) != 1) return 1;
            masses[i] = mass;
        }
        budget::fill(masses, in[1], in[2], in[3], in[0], bits, near);
        for (uint32_t tile = 0; tile < in[3]; ++tile) {
            if (bits[tile / 32] >> tile % 32 & 1) std::printf("%u ", tile);
        }
    """
    draw = random.Random(3)
    # Ties, zeros, one hot tile, whole words, weights over many octaves, and some that share all leading bits.
    kinds = [lambda: draw.randrange(2), lambda: draw.randrange(4), lambda: draw.randrange(2**32), lambda: 0]
    kinds += [lambda: draw.choice([1, 2**32 - 1, 2**31]), lambda: int(2 ** (26 * draw.random()))]
    kinds += [lambda: 2**24 + draw.randrange(40), lambda: 7, lambda: 2**32 - 1]
    lengths = [draw.randrange(1, 130) for _ in range(2000)] + [4096] * len(kinds)  # 128K tokens
    cases, expected = [], []
    for number, length in enumerate(lengths):
        masses = [kinds[number % len(kinds)]() for _ in range(length)]
        end = draw.randrange(length + 1)
        begin, budget = draw.randrange(end + 1), draw.choice([1 / PART, 0.5, 0.9, 0.98, 1 - 1 / PART])
        cases.append((unread_part(budget), begin, end, length, *masses))
        expected.append(chosen_tiles(masses, budget, begin, end))
    found = run_header(tmp_path, "tt_kernels/tile_selection/kernels/budget_cut.hpp", 4, body, cases)
    assert found == expected and sum(map(len, expected)) > 1000


@pytest.mark.sim
def test_bitmaps_of_all_layers_are_the_references(sim_device):
    """Users at different positions: one with fewer tiles than the guess reads, one skipped, one past the cache."""
    layers, users, heads, tiles = 2, 5, 2, 16
    at = [511, 200, 60, -1, 5000]
    chance = random.Random(5)
    masses = [
        chance.choice([0, 1, 5, chance.randrange(2**31), 2**31, 2**32 - 1])
        for _ in range(layers * users * heads * tiles)
    ]
    masses = torch.tensor(masses).view(layers, users, heads, tiles)
    masses[1, 0] = 0
    before = torch.full((users, heads, 8), 9)
    chosen = [words(before, "uint32", read=f"layer {layer}") for layer in range(layers)]
    given = ([words(layer, "uint32") for layer in masses], chosen, words(at), RANGE, BUDGET)
    found = run_op(sim_device(CHIP), OP, *given)
    for layer in range(layers):
        for user, position in enumerate(at):
            for head in range(heads):
                row = found[f"layer {layer}"][user, head].tolist()
                if position < 0:
                    assert row == [9] * 8
                    continue
                tokens = min(position + 1, 32 * tiles)
                held, middle = -(-tokens // 32), RANGE.middle(tokens)
                right = chosen_tiles(masses[layer, user, head, :held].tolist(), BUDGET, middle.start, middle.stop)
                assert row == chosen_rows([[right]], 32 * tiles).flatten().tolist(), (layer, user, head)
    assert not found["layer 1"][0].any(), "masses of zero choose nothing"


@pytest.mark.sim
def test_what_does_not_fit_together_is_refused(sim_device):
    def zeros(*shape: int, dtype: str = "uint32"):
        return words(torch.zeros(shape), dtype)

    good = (GuessRange(32, 32), 0.98)
    masses, chosen, at = zeros(2, 1, 9), zeros(2, 1, 8), zeros(2, dtype="int32")
    refused = {
        "got 0 and 0": ([], [], at, *good),
        "got 1 and 2": ([masses], [chosen, chosen], at, *good),
        "(2, 1, 9)": ([masses, zeros(2, 1, 4)], [chosen, chosen], at, *good),
        "(2, 1, 8)": ([masses], [zeros(2, 1, 16)], at, *good),
        "(2,)": ([masses], [chosen], zeros(1, dtype="int32"), *good),
        "budget must be from 1/65536 to 1 - 1/65536, got 0": ([masses], [chosen], at, good[0], 0),
        "got 0.999999": ([masses], [chosen], at, good[0], 0.999999),
        "288 tokens": ([masses], [chosen], at, GuessRange(32, 512), 0.98),
    }
    check_refused(sim_device(CHIP), {said: Call(OP, *given) for said, given in refused.items()})
