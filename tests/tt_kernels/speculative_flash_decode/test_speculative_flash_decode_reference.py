# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The reference of speculative flash decode against the model's attention, and the rule of who sends."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from models.llama31_8b.reference.model.attention import OneQuery
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, UNKNOWN, YIELDED
from tt_kernels.common.reference import NobodyError, sender, sends
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.reference import (
    guess_positions,
    receiver_priorities,
    sender_priorities,
    speculative_flash_decode_reference,
)

HEADERS = Path(__file__).parents[3] / "tt_kernels" / "common" / "kernels"


@pytest.mark.parametrize("position", [63, 64, 96, 127])
def test_reference_agrees_with_the_models_segmented_attention(position):
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


def test_reference_takes_the_papers_definition_of_the_tail_too():
    seen = guess_positions(99, 32, tail_alignment=1)
    assert seen.nonzero().flatten().tolist() == [*range(32), *range(68, 100)]
    assert guess_positions(99, 32).nonzero().flatten().tolist() == [*range(32), *range(64, 100)]
    short = guess_positions(99, 32, guess_range=GuessRange(32, 32))
    assert short.nonzero().flatten().tolist() == [*range(32), *range(96, 100)]
    assert guess_positions(62, 32).all()


def test_reference_skips_users_and_guesses_exactly_while_bypassed():
    torch.manual_seed(0)
    q, (k, v) = torch.randn(1, 3, 4, 16), torch.randn(2, 3, 2, 128, 16)
    found = speculative_flash_decode_reference(q, k, v, [-1, 62, 127], chunk_size=32)
    assert not found.exact[0, 0].any() and found.norm_sq[0] == 0
    assert torch.equal(found.guess[0, 1], found.exact[0, 1]) and found.distance_sq[1] == 0
    assert found.distance_sq[2] > 0, "128 tokens, of which 32 to 95 are not in the guess"
    torch.testing.assert_close(found.norm_sq[2], found.exact[0, 2].square().sum())


def test_outcomes_are_strict_and_count_bypassed_users_apart():
    distance, norm = torch.tensor([0.0, 0.0, 0.25, 0.0, 1.0]), torch.ones(5)
    positions = [-1, 62, 63, 63, 127]
    assert sender_priorities(distance, norm, positions, chunk_size=32, threshold=0.5) == [
        YIELDED,
        HOLDS_EXACT_UNVERIFIED,
        HOLDS_EXACT,
        YIELDED,
        HOLDS_EXACT,
    ]
    assert sender_priorities(distance, norm, positions, chunk_size=32, threshold=0.0)[3] == HOLDS_EXACT
    assert receiver_priorities(positions) == [YIELDED, HOLDS_GUESS, HOLDS_GUESS, HOLDS_GUESS, HOLDS_GUESS]


def test_the_rows_alone_decide_who_sends():
    """Skipped users count with what stands in their rows, so that exchange and attention cannot differ."""
    assert sender([[0, 2], [1, 1]], 2) == 0 and sender([[0, 0], [1, 1]], 2) == 1
    assert sender([[0, 2], [1, 1]], 1) == 1, "entries past the users do not count"
    assert sender([[2], [2]], 1) == 0 and sender([[1], [2]], 1) == 1
    with pytest.raises(NobodyError):
        sender([[0, 2], [0, 2]], 1)
    assert sender([[0], [0]], 1, somebody=False) == 0


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler for this machine")
def test_the_kernels_decide_who_sends_as_the_reference_does(tmp_path):
    source = tmp_path / "roles.cpp"
    source.write_text(
        """
        #include <cstdio>
        #include "priority.hpp"
        int main() {
            const uint32_t values[] = {0u, 1u, 2u, 3u, priority::unknown};
            for (uint32_t own = 0; own < 4; ++own) {
                for (uint32_t other : values) {
                    std::printf("%u %u %d %d %d\\n", own, other, priority::sends(own, other, 0),
                                priority::sends(own, other, 1), priority::nobody_holds(own, other));
                }
            }
        }
        """
    )
    program = tmp_path / "roles"
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Werror", f"-I{HEADERS}", source, "-o", program], check=True)
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 20
    for own, other, *found, nobody in (map(int, line.split()) for line in lines):
        assert found == [sends(own, other, 0), sends(own, other, 1)]
        assert bool(nobody) == (own == other == YIELDED)
        if other != UNKNOWN:
            assert sends(own, other, 0) != sends(other, own, 1), "one of them sends"
