# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The exact variant of the speculative flash decode, and the guess alone, on the simulated N150."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from loguru import logger

from tests.tt_kernels.speculative_flash_decode.flash_decode_checks import LIMIT_S, PCC, check_exact, check_result
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import (
    CHIP,
    Case,
    exact_body,
    guess_body,
    stock_body,
)
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.reference import guess_positions, speculative_flash_decode_reference

pytestmark = pytest.mark.sim


def test_exact_variant(sim_device):
    """Speculation compiled out, three workers per head; a skipped user's rows are zeros."""
    positions = [[127, -1], [0, 63], [-1, 64]]
    case = Case(6, 2, 128, 128, 32, users=2, workers=3, grid=(4, 2))
    for each, found in zip(positions, check_exact(sim_device(CHIP), case, positions), strict=True):
        for user, position in enumerate(each):
            assert position >= 0 or not found[0, user].any()


def test_errors_of_a_worker_that_goes_through_128_chunks(sim_device):
    """As many as one of eight workers has of 128K keys in chunks of 128. Were the state cut off where the matrix unit
    reads it, each chunk would take half a place of 9 bits of it: 4 % in all when scores are equal. By default there are
    64 chunks, of 64 keys."""
    short = Case(4, 1, 64, 4096, 32, workers=1, grid=(1, 1), key_chunk=32)
    q, k, v = short.random(5)
    equal = torch.zeros_like(q)
    positive = 1 + torch.rand(v.shape, generator=torch.Generator().manual_seed(6)).bfloat16()
    run = {"positions": [short.max_tokens - 1]}
    for name, case, query, values, most in (
        ("equal scores", short, equal, positive, 0.003),
        ("random", short, q, v, 0.006),
        ("random, default", replace(short, key_chunk=None), q, v, 0.005),
    ):
        (found,), caches = sim_device(CHIP).run(exact_body, case, query, k, values, [run], timeout=LIMIT_S)
        expected = speculative_flash_decode_reference(
            query, *caches, run["positions"], chunk_size=case.chunk_size
        ).exact.double()
        error = found.double() - expected
        norm = (error.norm() / expected.norm()).item()
        bias = ((error * expected).sum() / expected.square().sum()).item()
        logger.info(f"{name}: error of the norm {norm:.3%}, bias {bias:+.3%}, largest {error.abs().max():.2e}")
        assert norm <= most and abs(bias) <= 0.002, name


@pytest.mark.parametrize("workers", [5, 8])
def test_partial_results_of_the_exact_variant_are_merged(sim_device, workers):
    """Only the first worker has a part, then all, then the first three; 8 workers fill a tree of 3 steps."""
    case = Case(4, 1, 64, 256, 32, users=3, workers=workers, grid=(4, 2))
    first, *others = check_exact(sim_device(CHIP), case, [[30, 249, 64]] * (2 if workers == 8 else 1))
    assert all(torch.equal(first, again) for again in others)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("guess_range", [None, GuessRange(64, 32)], ids=str)
def test_the_guess_alone(sim_device, guess_range, workers):
    """Whatever lies outside it, NaN too, is not read. A user without speculation, one whose two ends meet, a skipped
    one, and two at and behind a boundary of tiles."""
    case = Case(6, 2, 64, 192, 32, users=5, workers=workers, grid=(3, 1) if workers == 3 else (2, 1))
    positions = [40, 95, -1, 159, 160]
    q, k, v = case.random(5)
    dirty = [part.clone() for part in (k, v)]
    for user, position in enumerate(positions):
        outside = ~guess_positions(position, 32, guess_range=guess_range) if position >= 0 else slice(None)
        for part in dirty:
            part[user, :, : position + 1][:, outside] = math.nan
    run = {"positions": positions} | ({} if guess_range is None else {"guess_range": guess_range})
    (found,), _ = sim_device(CHIP).run(guess_body, case, q, *dirty, [run], timeout=LIMIT_S)
    reference = speculative_flash_decode_reference(q, k, v, positions, chunk_size=32, guess_range=guess_range)
    check_result(f"guess alone {guess_range} {workers}", found, reference.guess, PCC[case.cache])
    assert not found[0, 2].any()


@pytest.mark.parametrize("heads, kv_heads", [(32, 1), (8, 2)], ids=["32/1", "8/2"])
def test_stock_decode_attention_is_a_second_reference(sim_device, heads, kv_heads):
    """On one core."""
    case = Case(heads, kv_heads, 64, 128, 32, grid=(1, 1))
    device = sim_device(CHIP)
    stock = device.run(stock_body, *case.random(2), 100, timeout=LIMIT_S)
    (found,) = check_exact(device, case, [[100]], seed=2)
    check_result("against stock attention", found, stock.double(), 0.999)
