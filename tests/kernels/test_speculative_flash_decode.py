# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The speculative flash decode kernels on the simulated N150 against the torch oracle."""

from __future__ import annotations

import pytest
import torch
from flash_decode_programs import CHIP, REFUSED, Case, exact_body, refused_body, speculative_body, stock_body
from loguru import logger

from tt_kernels.common.priority import ACCEPTED, BYPASSED, REJECTED
from tt_kernels.speculative_flash_decode.reference import outcomes, speculative_flash_decode_reference

pytestmark = pytest.mark.sim

LIMIT_S = 900
PCC = {"bfloat16": 0.999, "bfloat8_b": 0.99}
# Both results are bfloat16: below a distance of 2% of the norm their rounding shows in it.
NORM_TOLERANCE, ROUNDING = 0.01, 2e-5


def correlation(found: torch.Tensor, expected: torch.Tensor) -> float:
    both = torch.stack((found.double().flatten(), expected.double().flatten()))
    return torch.corrcoef(both)[0, 1].item()


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
            q, *caches, each, chunk_size=case.chunk_size, scale=run.get("scale")
        )
        for name in ("exact", "guess"):
            check_result(f"{case} {each} {name}", found[name], getattr(reference, name), PCC[case.cache])
        check_numbers(found, reference)
    return results


def test_every_boundary_of_the_cache(sim_device):
    """One program at all positions: tile and chunk boundaries, bypassed, without a middle, the maximum."""
    tokens = [1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 256]
    results = check_speculative(sim_device(CHIP), Case(), [[n - 1] for n in tokens])
    for n, found in zip(tokens, results, strict=True):
        if n <= 128:
            assert torch.equal(found["exact"], found["guess"]) and found["distance_sq"].item() == 0, n


def test_positions_past_the_cache_count_as_its_last(sim_device):
    case = Case()
    q, k, v = case.random()
    runs = [{"positions": [position]} for position in (255, 256, 100_000)]
    (last, *past), _ = sim_device(CHIP).run(speculative_body, case, q, k, v, runs, timeout=LIMIT_S)
    for found in past:
        assert torch.equal(found["exact"], last["exact"])


@pytest.mark.parametrize(
    "case, positions",
    [
        (Case(1, 1, max_tokens=128, chunk_size=32), [[70], [127]]),
        (Case(8, 2, 128, 128, 32, users=2, cache="bfloat8_b", workers=1, grid=(2, 2)), [[65, 127]]),
        (Case(9, 3, 64, 256, 32, workers=2, grid=(4, 2)), [[31], [254]]),
        (Case(32, 8, 64, 128, 32, workers=1, grid=(4, 2)), [[100]]),
    ],
    ids=["1/1", "8/2 two users", "9/3 two workers a head", "32/8 heads take turns"],
)
def test_head_layouts(sim_device, case, positions):
    check_speculative(sim_device(CHIP), case, positions)


def test_eight_users_with_a_head_each_query(sim_device):
    """MHA at the largest batch; two groups of cores take the heads of all users in turn."""
    case = Case(2, 2, 64, 128, 32, users=8, workers=1, grid=(3, 1))
    (found,) = check_speculative(sim_device(CHIP), case, [[0, 31, 33, -1, 5, 127, 10, 64]])
    assert not found["exact"][0, 3].any() and found["norm_sq"][3] == 0


def test_workers_share_a_head_of_128_in_bfloat8_b(sim_device):
    case = Case(4, 1, 128, 256, 64, cache="bfloat8_b", workers=3, grid=(2, 2))
    check_speculative(sim_device(CHIP), case, [[199]], scale=0.05)


def test_exact_variant_on_one_core(sim_device):
    """Speculation compiled out; a skipped user's rows are zeros; stock decode attention agrees."""
    case = Case(6, 2, 64, 128, 32, users=2, grid=(1, 1))
    q, k, v = case.random(1)
    positions = [[127, -1], [0, 63], [-1, 64]]
    results, caches = sim_device(CHIP).run(
        exact_body, case, q, k, v, [{"positions": each} for each in positions], timeout=LIMIT_S
    )
    for each, found in zip(positions, results, strict=True):
        reference = speculative_flash_decode_reference(q, *caches, each, chunk_size=32)
        check_result(f"exact variant {each}", found, reference.exact, 0.999)
        for user, position in enumerate(each):
            assert position >= 0 or not found[0, user].any()


def test_stock_decode_attention_is_a_second_oracle(sim_device):
    case = Case(32, 1, 64, 128, 32, grid=(1, 1))
    q, k, v = case.random(2)
    device = sim_device(CHIP)
    stock = device.run(stock_body, q, k, v, 100, timeout=LIMIT_S)
    (found,), _ = device.run(exact_body, case, q, k, v, [{"positions": [100]}], timeout=LIMIT_S)
    check_result("against stock attention", found, stock.double(), 0.999)


def crafted(case: Case, hits: list[bool]):
    """Caches whose middle has no weight for the users that are to hit, and nearly all of it for the
    others."""
    q, k, v = case.random(3)
    direction = q.float().mean(2).sign()[0]  # [users, d]
    middle = slice(case.chunk_size, case.max_tokens - case.chunk_size)
    for user, hit in enumerate(hits):
        towards = direction[user] * (-2 if hit else 2)
        k[user, :, middle] = towards.bfloat16()
        if hit:
            v[user, :, middle] = 0
    q[...] = (direction.view(1, case.users, 1, -1) + 0.1 * q.float()).bfloat16()
    return q, k, v


def test_mixed_outcomes_of_several_users(sim_device):
    """A hit, a miss, a bypassed and a skipped user in one call; threshold 0 accepts nothing, a large one
    all."""
    case = Case(2, 1, 64, 128, 32, users=4)
    q, k, v = crafted(case, [True, False, True, True])
    positions = [127, 127, 62, -1]
    thresholds = [0.1, 0.0, 100.0]
    runs = [{"positions": positions, "threshold": each, "priority": REJECTED} for each in thresholds]
    results, caches = sim_device(CHIP).run(speculative_body, case, q, k, v, runs, timeout=LIMIT_S)
    reference = speculative_flash_decode_reference(q, *caches, positions, chunk_size=32)
    ratios = (reference.distance_sq / reference.norm_sq).sqrt()
    assert ratios[0] < 0.09 and ratios[1] > 0.11, "the cases must lie clear of the band around the threshold"
    expected = {
        0.1: [ACCEPTED, REJECTED, BYPASSED, ACCEPTED],
        0.0: [REJECTED, REJECTED, BYPASSED, ACCEPTED],
        100.0: [ACCEPTED, ACCEPTED, BYPASSED, ACCEPTED],
    }
    for threshold, found in zip(thresholds, results, strict=True):
        oracle = outcomes(
            reference.distance_sq, reference.norm_sq, positions, chunk_size=32, threshold=threshold
        )
        assert found["priority"] == expected[threshold] == oracle
        check_numbers(found, reference)
        assert torch.equal(found["exact"], results[0]["exact"]), "the threshold changes decisions only"
        assert not found["exact"][0, 3].any() and not found["guess"][0, 3].any()


def test_fifty_repeats_are_bit_equal(sim_device):
    case = Case(2, 1, 64, 128, 32, users=4)
    q, k, v = case.random(4)
    runs = 50 * [{"positions": [70, -1, -1, -1], "priority": REJECTED}]
    results, _ = sim_device(CHIP).run(speculative_body, case, q, k, v, runs, timeout=LIMIT_S)
    for found in results[1:]:
        for name, value in results[0].items():
            assert (
                torch.equal(found[name], value) if isinstance(value, torch.Tensor) else found[name] == value
            )


def test_shapes_are_arguments_of_one_program(sim_device):
    """Heads and cache lengths that leave the buffers alone: the second call must not run with the first's
    numbers."""
    device = sim_device(CHIP)
    check_speculative(device, Case(4, 1, 64, 128, 32), [[100]])
    check_speculative(device, Case(8, 1, 64, 256, 32), [[180]])


def test_refused_before_anything_runs(sim_device):
    messages = {
        "host query": ("UnsupportedError", "q must be on device, it is in host memory"),
        "small grid": ("ValueError", "need 2 cores, the grid has 1"),
        "grid outside": ("UnsupportedError", "a grid of 4x1 cores at (1, 0) is not within the device's 4x2"),
        "tiled priority": ("ValueError", "priority must be uint32, row-major"),
        "too large chunk": ("UnsupportedError", "chunk_size 4096 with head_dim 128"),
    }
    assert messages.keys() == REFUSED.keys()
    for build, (kind, text) in messages.items():
        found = sim_device(CHIP).run(refused_body, build)
        assert found is not None and found[0] == kind and text in found[1], (build, found)
