# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The softmax mass of each key tile that the exact pass hands out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from loguru import logger

from tests.support.pcc import correlation
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import CHIP, Case, speculative_body
from tests.tt_kernels.speculative_flash_decode.listed_tiles import CASE, LISTS, POSITIONS, RANGE, list_words
from tt_kernels.speculative_flash_decode.reference import speculative_flash_decode_reference, tile_masses_reference
from tt_kernels.speculative_flash_decode.tile_lists import MASS_UNIT

LIMIT_S = 900
UNTOUCHED = 12345


def check_masses(found: torch.Tensor, q, k, positions, **options) -> None:
    """Relative to the mass of a head, 1 % of each tile's; what has no cached tokens stays what it was."""
    expected = tile_masses_reference(q, k, positions, **options)
    cached = torch.zeros_like(expected, dtype=torch.bool)
    for user, position in enumerate(positions):
        cached[user, :, : -(-(position + 1) // 32)] = True
    assert (found[~cached] == UNTOUCHED).all()
    masses, expected = found.double()[cached] * MASS_UNIT, expected[cached]
    error = (masses - expected).abs()
    relative = (error / expected.clamp(min=1e-3)).max().item()
    logger.info(
        f"masses: PCC {correlation(masses, expected):.6f}, largest error {error.max().item():.2e}, "
        f"relative {relative:.2%}"
    )
    assert relative < 0.015


@pytest.mark.sim
@pytest.mark.parametrize(
    ("workers", "changes"),
    [
        pytest.param(1, {}, id="1"),
        pytest.param(3, {}, id="3"),
        pytest.param(3, {"head_dim": 128, "cache": "bfloat8_b"}, id="3-128-bfloat8_b"),
        pytest.param(2, {"cache": "bfloat8_b", "chunk_size": 64}, id="2-64-bfloat8_b"),
    ],
)
def test_masses_are_those_of_the_softmax(sim_device, workers, changes):
    """All users in turn, with listed tiles and without; the results beside them are as good as ever."""
    case = replace(CASE, workers=workers, **changes)
    q, k, v = case.random(31)
    q = q * 3  # some tiles hold most of the mass
    blank = torch.full((case.users, case.kv_heads, case.max_tokens // 32), UNTOUCHED, dtype=torch.int32)
    run = {"positions": POSITIONS, "masses": blank, "priority": 2}
    runs = [run | {"guess_range": RANGE, "lists": list_words()}, run]
    (listed, ends), caches = sim_device(CHIP).run(speculative_body, case, q, k, v, runs, timeout=LIMIT_S)
    k, v = (cache.float() for cache in caches)
    for found, options in ((listed, {"guess_range": RANGE, "listed": LISTS}), (ends, {})):
        check_masses(found["masses"], q, k, POSITIONS)
        expected = speculative_flash_decode_reference(q, k, v, POSITIONS, chunk_size=case.chunk_size, **options)
        for name in ("exact", "guess"):
            assert correlation(found[name], getattr(expected, name)) > 0.999, name
        torch.testing.assert_close(found["norm_sq"].double(), expected.norm_sq, rtol=0.01, atol=0)


def rising(tokens: int, kind: str) -> torch.Tensor:
    """Scores whose running maximum rises in small steps, from far below 0 to far above it; falls; or leaps, beyond what
    exponents hold, after which all are equal."""
    at = torch.arange(tokens) / tokens
    return {"climbs": 40 * at - 20, "falls": 20 - 40 * at, "leaps": torch.where(at < 0.6, 4 * at, 1e6)}[kind]


@pytest.mark.sim
@pytest.mark.parametrize("workers", [1, 3])
def test_masses_where_maxima_rise(sim_device, workers):
    """What a worker has kept is brought down, often or to nothing: a head and user for each way of rising."""
    case = Case(4, 2, 64, 384, 32, users=2, grid=(4, 1), workers=workers)
    q, k, v = (tensor.float() for tensor in case.random(32))
    k *= 0.1
    q[..., 0] = 64
    for place, kind in zip(((0, 0), (0, 1), (1, 0)), ("climbs", "falls", "leaps"), strict=True):
        k[(*place, slice(None), 0)] = rising(case.max_tokens, kind) / 8
    k[1, 0, :, 1:] = 0
    q, k, v = q.bfloat16(), k.bfloat16(), v.bfloat16()
    positions = [case.max_tokens - 1, case.max_tokens - 20]
    blank = torch.full((case.users, case.kv_heads, case.max_tokens // 32), UNTOUCHED, dtype=torch.int32)
    run = {"positions": positions, "masses": blank, "priority": 2}
    (found,), _ = sim_device(CHIP).run(speculative_body, case, q, k, v, [run], timeout=LIMIT_S)
    check_masses(found["masses"], q, k.float(), positions)
