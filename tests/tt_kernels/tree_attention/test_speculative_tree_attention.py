# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tree attention with a guess on the simulated N150 against the torch reference, and against tree attention."""

from __future__ import annotations

import pytest
import torch
from loguru import logger

from tests.support.pcc import correlation
from tests.tt_kernels.tree_attention.tree_programs import (
    CHIP,
    Case,
    binary,
    chain,
    count_programs_body,
    forget_programs_body,
    padded,
    random_tree,
    speculative_body,
    speculative_decode_body,
    speculative_refused_body,
    star,
    tree_body,
)
from tt_kernels.common import priority
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.tree_attention.reference import speculative_tree_attention_reference

pytestmark = pytest.mark.sim

LIMIT_S = 900
# Distances and norms are those of the rounded results (README.md of the flash decode op, Numbers).
CLOSE = {"rtol": 0.01, "atol": 0.0}


def check(
    device, case: Case, calls: list[dict], guess: GuessRange, seed: int = 0, mass: float = 0.0
) -> list[list[int]]:
    """Guess, exact result, numbers and priorities of each call; returns the priorities."""
    q, k, v = case.random(seed)
    results, caches = device.run(speculative_body, case, q, k, v, calls, guess, timeout=LIMIT_S)
    plain, _ = device.run(tree_body, case, q, k, v, calls, timeout=LIMIT_S)
    found_priorities = []
    for call, found, alone in zip(calls, results, plain, strict=True):
        threshold = call["threshold"]
        wanted = speculative_tree_attention_reference(q, *caches, call["prefix"], call["parents"], guess, threshold)
        for user, prefix in enumerate(call["prefix"]):
            rows = slice(user * case.nodes, (user + 1) * case.nodes)
            for name in ("exact", "guess"):
                mine, theirs = found[name][0, :, rows].double(), getattr(wanted, name)[0, :, rows]
                if prefix < 0:
                    assert not mine.any(), name
                    continue
                by_row = [correlation(mine[:, row], theirs[:, row]) for row in range(case.nodes)]
                error = (mine - theirs).abs().max().item()
                logger.info("{} {} prefix {}: PCC {:.6f}, largest error {:.1e}", name, case, prefix, min(by_row), error)
                assert min(by_row) > 0.999
        assert not found["exact"][:, :, case.users * case.nodes :].any()
        assert not found["guess"][:, :, case.users * case.nodes :].any()
        logger.info("distance^2 {} of {}", found["distance_sq"].tolist(), wanted.distance_sq.tolist())
        torch.testing.assert_close(found["norm_sq"].double(), wanted.norm_sq, **CLOSE)
        near = 2e-5 * wanted.norm_sq.max().item()
        torch.testing.assert_close(found["distance_sq"].double(), wanted.distance_sq, rtol=0.02, atol=near)
        expected = [
            priority.YIELDED
            if accepted or prefix < 0
            else priority.HOLDS_EXACT_UNVERIFIED
            if bypassed
            else priority.HOLDS_EXACT
            for prefix, accepted, bypassed in zip(call["prefix"], wanted.accepted, wanted.bypassed, strict=True)
        ]
        assert found["priority"][: case.users] == expected
        assert not any(found["priority"][case.users :])
        # Another split of the keys among workers rounds otherwise; the result is the same attention.
        assert correlation(found["exact"], alone) > 0.9999
        found_priorities.append(found["priority"][: case.users])
    return found_priorities


BOTH = GuessRange.both_ends(32)


@pytest.mark.parametrize("workers", [1, 2])
def test_guess_exact_result_and_decision(sim_device, workers: int) -> None:
    """Hits, misses, a bypassed tree, roots at both sides of tile boundaries, and narrower trees."""
    case = Case(4, 1, 64, 192, 8, grid=(3, 1), workers=workers)
    calls = [
        {"prefix": [prefix], "parents": [parents], "threshold": threshold}
        for prefix, parents, threshold in (
            (150, random_tree(8, 1, roots=0), 0.9),
            (150, padded(star(5), 8), 0.02),
            (159, chain(8), 0.0),
            (127, binary(8), 0.9),
            (62, chain(8), 0.9),
            (63, chain(8), 0.9),
        )
    ]
    (hit,), (miss,), (never,), _, (bypassed,), _ = check(sim_device(CHIP), case, calls, BOTH)
    assert (hit, miss, never, bypassed) == (0, 2, 2, 3)


CASES = {
    # Two users on two groups of three workers, each head two query tiles; then a skipped one, and one whose cache is
    # the tree alone.
    "users": (
        Case(8, 2, 64, 256, 16, users=2, grid=(4, 2), workers=3),
        [
            {"prefix": [200, 97], "parents": [random_tree(16, 3, roots=0), padded(binary(9), 16)], "threshold": 0.6},
            {"prefix": [-1, 0], "parents": [chain(16), star(16)], "threshold": 0.6},
        ],
        BOTH,
    ),
    # As many users as there may be, whose jobs two groups of three workers take in turn.
    "eight users": (
        Case(2, 1, 64, 96, 4, users=8, grid=(4, 2), workers=3, key_chunk=32),
        [{"prefix": [90, 0, 31, 32, -1, 64, 75, 50], "parents": [star(4), chain(4)] * 4, "threshold": 0.7}],
        BOTH,
    ),
    # Seven workers, most of which have nothing: partial results pass through them.
    "workers": (
        Case(2, 1, 64, 256, 4, grid=(4, 2), workers=7, key_chunk=32),
        [{"prefix": [prefix], "parents": [star(4)], "threshold": 0.9} for prefix in (0, 30, 96, 129, 250)],
        BOTH,
    ),
    # Four workers, of which the second has the guess: beside a part of the middle, alone, and all there is.
    "full merge": (
        Case(4, 1, 64, 512, 16, grid=(4, 2), workers=4),
        [{"prefix": [prefix], "parents": [binary(16)], "threshold": 0.6} for prefix in (490, 150, 0)],
        BOTH,
    ),
    # Jobs of three query tiles and of one, head_dim 128, quantised caches, other sizes at the two ends.
    "passes": (
        Case(2, 1, 128, 192, 64, cache="bfloat8_b", grid=(3, 1), workers=2, query_tiles=3, key_chunk=32),
        [{"prefix": [120], "parents": [random_tree(64, 5, roots=0)], "threshold": 0.7}],
        GuessRange(32, 64),
    ),
    # Chunks that the rest of the guess's end, or of the middle, goes into; the tree within the last tile of its root,
    # or in the next one too.
    "rest": (
        Case(4, 1, 64, 512, 16, grid=(2, 1), workers=1, key_chunk=128),
        [{"prefix": [prefix], "parents": [binary(16)], "threshold": 0.8} for prefix in (400, 440, 471)],
        GuessRange.both_ends(128),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_shapes(sim_device, name: str) -> None:
    case, calls, guess = CASES[name]
    check(sim_device(CHIP), case, calls, guess)


def test_one_node_is_speculative_flash_decode_bit_for_bit(sim_device) -> None:
    """Where each head has one worker and chunks of keys have one size."""
    case = Case(4, 1, 64, 192, 1, users=4)
    prefix, device = [150, 95, 64, 40], sim_device(CHIP)
    q, k, v = case.random(9)
    call = {"prefix": prefix, "parents": [[-1]] * 4, "threshold": 0.8}
    (found,), _ = device.run(speculative_body, case, q, k, v, [call], BOTH, timeout=LIMIT_S)
    decoded = device.run(speculative_decode_body, case, q.transpose(1, 2), k, v, prefix, BOTH, 0.8, timeout=LIMIT_S)
    for name in ("exact", "guess"):
        assert torch.equal(found[name][:, :, :4], decoded[name].transpose(1, 2)), name
    for name in ("distance_sq", "norm_sq"):
        torch.testing.assert_close(found[name], decoded[name], rtol=1e-6, atol=0)
    assert found["priority"] == decoded["priority"]


def test_thresholds_prefixes_and_guess_ranges_are_arguments_of_one_program(sim_device) -> None:
    """Decisions turn at the threshold that the reference's ratio gives, two percent to either side of it."""
    device = sim_device(CHIP)
    device.run(forget_programs_body)
    case = Case(4, 1, 64, 192, 8, grid=(3, 1), workers=2)
    q, k, v = case.random(4)
    tree = random_tree(8, 2, roots=0)
    wanted = speculative_tree_attention_reference(q, k, v, [150], [tree], BOTH, 0.0)
    ratio = (wanted.distance_sq / wanted.norm_sq).sqrt().item()
    calls = [
        {"prefix": [150], "parents": [tree], "threshold": threshold} for threshold in (0.98 * ratio, 1.02 * ratio, 0.0)
    ]
    results, _ = device.run(speculative_body, case, q, k, v, calls, BOTH, timeout=LIMIT_S)
    assert [found["priority"][0] for found in results] == [2, 0, 2]
    for found in results[1:]:
        assert all(torch.equal(found[name], results[0][name]) for name in ("exact", "guess", "distance_sq", "norm_sq"))
    device.run(speculative_body, case, q, k, v, calls[:1], GuessRange(64, 32), timeout=LIMIT_S)
    assert device.run(count_programs_body) == 1


def test_refused_before_anything_runs(sim_device) -> None:
    messages = {
        "chunk": "chunk_size must be a positive multiple of 32, got 100",
        "range": "guess_range.last must be a multiple of 32 from 32 to the 192 tokens of the caches, got 20",
        "threshold": "threshold must be from 0 to 1e+06, got -0.1",
        "priority": "priority must be a ttnn.Tensor, not builtins.int",
    }
    found = sim_device(CHIP).run(speculative_refused_body, Case(4, 1, 64, 192, 8), timeout=LIMIT_S)
    assert found.keys() == messages.keys()
    for name, message in found.items():
        assert message is not None and messages[name] in message, (name, message)
