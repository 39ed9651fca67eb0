# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Results of the speculative flash decode and of its exact variant, held to the torch reference."""

from __future__ import annotations

import torch
from loguru import logger

from tests.support.pcc import correlation
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import Case, exact_body, speculative_body
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.reference import speculative_flash_decode_reference

LIMIT_S = 900
PCC = {"bfloat16": 0.999, "bfloat8_b": 0.99}
# Both results are bfloat16: below a distance of 2% of the norm their rounding shows in it.
NORM_TOLERANCE, ROUNDING = 0.01, 2e-5
SHORT = GuessRange(32, 32)  # leaves keys out from 65 cached tokens on, the default in chunks of 32 from 96 on


def check_result(name: str, found: torch.Tensor, expected: torch.Tensor, least: float) -> None:
    error = (found.double() - expected).abs()
    relative = (error / expected.abs().clamp_min(1e-2)).max().item()
    pcc = correlation(found, expected)
    logger.info(f"{name}: PCC {pcc:.6f}, largest error {error.max().item():.2e}, relative {relative:.2e}")
    assert found.isfinite().all() and pcc >= least, name


def check_numbers(found: dict, reference) -> None:
    """distance_sq and norm_sq within 1%, and what bfloat16 outputs leave of a distance near 0."""
    norm, distance = reference.norm_sq, reference.distance_sq
    logger.info(f"norm {found['norm_sq'].tolist()} of {norm.tolist()}")
    logger.info(f"distance {found['distance_sq'].tolist()} of {distance.tolist()}")
    torch.testing.assert_close(found["norm_sq"].double(), norm, rtol=NORM_TOLERANCE, atol=0)
    allowed = NORM_TOLERANCE * distance + ROUNDING * norm
    assert ((found["distance_sq"].double() - distance).abs() <= allowed).all()


def check_speculative(device, case: Case, positions: list[list[int]], seed: int = 0, **run) -> list[dict]:
    q, k, v = case.random(seed)
    runs = [{"positions": each, **run} for each in positions]
    results, caches = device.run(speculative_body, case, q, k, v, runs, timeout=LIMIT_S)
    for each, found in zip(positions, results, strict=True):
        reference = speculative_flash_decode_reference(
            q, *caches, each, chunk_size=case.chunk_size, scale=run.get("scale"), guess_range=run.get("guess_range")
        )
        for name in ("exact", "guess"):
            check_result(f"{case} {each} {name}", found[name], getattr(reference, name), PCC[case.cache])
        check_numbers(found, reference)
    return results


def check_exact(device, case: Case, positions: list[list[int]], seed: int = 1) -> list[torch.Tensor]:
    q, k, v = case.random(seed)
    results, caches = device.run(
        exact_body, case, q, k, v, [{"positions": each} for each in positions], timeout=LIMIT_S
    )
    for each, found in zip(positions, results, strict=True):
        reference = speculative_flash_decode_reference(q, *caches, each, chunk_size=case.chunk_size)
        check_result(f"exact variant {case} {each}", found, reference.exact, PCC[case.cache])
    return results
