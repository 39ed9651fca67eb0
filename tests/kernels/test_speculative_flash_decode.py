# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The speculative flash decode kernels on the simulated N150 against the torch oracle."""

from __future__ import annotations

import pytest
import torch
from flash_decode_programs import (
    CHIP,
    REFUSED,
    Case,
    exact_body,
    refused_body,
    repeats_body,
    speculative_body,
    stock_body,
)
from loguru import logger
from pcc import correlation

from tt_kernels.common.priority import ACCEPTED, BYPASSED, REJECTED
from tt_kernels.speculative_flash_decode.reference import outcomes, speculative_flash_decode_reference

pytestmark = pytest.mark.sim

LIMIT_S = 900
PCC = {"bfloat16": 0.999, "bfloat8_b": 0.99}
# Both results are bfloat16: below a distance of 2% of the norm their rounding shows in it.
NORM_TOLERANCE, ROUNDING = 0.01, 2e-5


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


# Cached tokens at every boundary of a tile and of a chunk, bypassed, without a middle, not a multiple, the
# maximum. A call takes them as its users' positions, each user with a cache of its own.
CHUNKS_OF_64 = [[1, 31, 32, 33, 63, 64], [65, 127, 128, 129, 150, 192]]
CHUNKS_OF_32 = [[1, 31, 32, 33, 64, 65, 90, 128]]
BOUNDARIES = {
    "4/1": (Case(4, 1, 64, 192, 64, users=6), CHUNKS_OF_64),
    "1/1": (Case(1, 1, 64, 128, 32, users=8, workers=3, grid=(4, 1)), CHUNKS_OF_32),
    "8/2": (Case(8, 2, 64, 128, 32, users=8, cache="bfloat8_b", workers=1, grid=(3, 1)), CHUNKS_OF_32),
    "9/3": (Case(9, 3, 64, 128, 32, users=8, workers=2, grid=(3, 1)), CHUNKS_OF_32),
    "32/8": (Case(32, 8, 64, 96, 32, users=4, workers=1, grid=(4, 2)), [[1, 33, 64, 90]]),
}


@pytest.mark.parametrize("case, calls", BOUNDARIES.values(), ids=BOUNDARIES)
def test_boundaries_of_tiles_chunks_and_the_cache(sim_device, case, calls):
    """One group of cores takes the heads of several users in turn, or several groups share them."""
    results = check_speculative(sim_device(CHIP), case, [[n - 1 for n in tokens] for tokens in calls])
    for tokens, found in zip(calls, results, strict=True):
        for user, n in enumerate(tokens):
            if n <= 2 * case.chunk_size:  # the guess reads it all
                assert torch.equal(found["exact"][0, user], found["guess"][0, user]), n
                assert found["distance_sq"][user] == 0, n


def test_positions_past_the_cache_count_as_its_last(sim_device):
    case = Case(max_tokens=64, chunk_size=32, users=3)
    q, k, v = case.random()
    same = [q[:, :1].expand_as(q), k[:1].expand_as(k), v[:1].expand_as(v)]
    runs = [{"positions": [63, 64, 100_000]}]
    (found,), _ = sim_device(CHIP).run(speculative_body, case, *same, runs, timeout=LIMIT_S)
    assert found["exact"].any()
    for user in (1, 2):
        assert torch.equal(found["exact"][0, user], found["exact"][0, 0])


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


def test_decisions_follow_thresholds_close_to_the_ratio(sim_device):
    """2% above |guess - exact| / |exact| a guess is accepted, 2% below it is not: the band in which the
    decision may differ from the oracle's is within 1%."""
    case = Case(4, 1, 64, 96, 32, users=3)
    q, k, v = case.random(7)
    # The narrower the values spread around one they have in common, the better the guess.
    common = torch.randn(1, 1, 1, case.head_dim, generator=torch.Generator().manual_seed(0))
    v = (common + torch.tensor([0.6, 1.5, 6.0]).view(-1, 1, 1, 1) * v).bfloat16()
    positions = [95, 80, 64]
    reference = speculative_flash_decode_reference(q, k, v, positions, chunk_size=32)
    ratios = (reference.distance_sq / reference.norm_sq).sqrt().tolist()
    logger.info(f"ratios {ratios}")
    assert 0.05 < ratios[0] < ratios[1] / 2 < ratios[2] / 4, "each clear of the others' bands"
    thresholds = [factor * ratio for ratio in ratios for factor in (0.98, 1.02)]
    runs = [{"positions": positions, "threshold": each, "priority": REJECTED} for each in thresholds]
    results, _ = sim_device(CHIP).run(speculative_body, case, q, k, v, runs, timeout=LIMIT_S)
    for threshold, found in zip(thresholds, results, strict=True):
        expected = [ACCEPTED if ratio < threshold else REJECTED for ratio in ratios]
        assert found["priority"] == expected, (threshold, ratios)
    check_numbers(results[0], reference)


def test_fifty_repeats_are_bit_equal(sim_device):
    """The fewest tokens with a guess, a middle and a mask; calls follow each other without a look at the
    results."""
    case = Case(2, 1, 64, 96, 32)
    q, k, v = case.random(4)
    results = sim_device(CHIP).run(repeats_body, case, q, k, v, [65], 50, timeout=LIMIT_S)
    reference = speculative_flash_decode_reference(q, k, v, [65], chunk_size=32)
    check_result("repeats", results[0]["exact"], reference.exact, PCC[case.cache])
    assert len(results) == 50
    for found in results[1:]:
        for name, value in results[0].items():
            is_tensor = isinstance(value, torch.Tensor)
            assert torch.equal(found[name], value) if is_tensor else found[name] == value, name


def test_shapes_are_arguments_of_one_program(sim_device):
    """Heads and cache lengths that leave the buffers alone: the second call must not run with the first's
    numbers."""
    device = sim_device(CHIP)
    check_speculative(device, Case(4, 1, 64, 128, 32), [[64]])
    check_speculative(device, Case(8, 1, 64, 256, 32), [[130]])


def gate_body(device, case: Case, q, k, v, run):
    """The results of `run` while the compute gate is closed, and then while it is open.

    In this order what the closed gate stopped cannot be hidden by results that the other call left in memory.
    """
    import sgdc_programs

    from tt_kernels.compute_gate.op import clear_compute_gate, skip_compute

    clear_compute_gate(device)
    results = []
    for value in (ACCEPTED, REJECTED):
        with skip_compute(sgdc_programs.priorities(device, value), users=1):
            results += speculative_body(device, case, q, k, v, [run])[0]
    return results


def test_a_closed_gate_does_not_stop_it(sim_device):
    case = Case(2, 1, 64, 96, 32)
    run = {"positions": [80], "priority": ACCEPTED, "threshold": 0.0}
    gate_closed, gate_open = sim_device(CHIP).run(gate_body, case, *case.random(7), run, timeout=LIMIT_S)
    assert gate_closed["exact"].any() and not torch.equal(gate_closed["exact"], gate_closed["guess"])
    for name in ("exact", "guess", "distance_sq", "norm_sq"):
        assert torch.equal(gate_open[name], gate_closed[name]), name
    assert gate_open["priority"] == gate_closed["priority"] == [REJECTED]


def test_refused_before_anything_runs(sim_device):
    messages = {
        "host query": ("UnsupportedError", "q must be on device, it is in host memory"),
        "small grid": ("ValueError", "need 2 cores, the grid has 1"),
        "grid outside": ("UnsupportedError", "a grid of 4x1 cores at (1, 0) is not within the device's 4x2"),
        "tiled priority": ("ValueError", "priority must be uint32, row-major"),
        "too large chunk": ("UnsupportedError", "chunk_size 4096 with head_dim 128"),
        "third member": ("UnsupportedError", "present must name members 0, 1 or both once, got (0, 2)"),
        "two fidelities": ("UnsupportedError", "math_fidelity HiFi4 and LoFi: they must be equal"),
        "shared cores": ("UnsupportedError", "core (0, 0) belongs to both members of the pair"),
        "gated pair": (
            "GatedRegionError",
            "speculative_flash_decode_pair (cluster_axis=None) is a cross-chip op",
        ),
    }
    assert messages.keys() == REFUSED.keys()
    for build, (kind, text) in messages.items():
        found = sim_device(CHIP).run(refused_body, build)
        assert found is not None and found[0] == kind and text in found[1], (build, found)
