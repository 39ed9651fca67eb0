# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the speculative flash decode decides: which guesses it accepts, whatever the compute gate says."""

from __future__ import annotations

import pytest
import torch
from loguru import logger

from tests.support.bfloat16_bits import set_bits
from tests.tt_kernels.speculative_flash_decode.flash_decode_checks import LIMIT_S, SHORT, check_numbers
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import CHIP, Case, exact_body, speculative_body
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, YIELDED
from tt_kernels.speculative_flash_decode.reference import sender_priorities, speculative_flash_decode_reference

pytestmark = pytest.mark.sim


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
    runs = [{"positions": positions, "threshold": each, "priority": HOLDS_EXACT} for each in thresholds]
    results, caches = sim_device(CHIP).run(speculative_body, case, q, k, v, runs, timeout=LIMIT_S)
    reference = speculative_flash_decode_reference(q, *caches, positions, chunk_size=32)
    ratios = (reference.distance_sq / reference.norm_sq).sqrt()
    assert ratios[0] < 0.09 and ratios[1] > 0.11, "the cases must lie clear of the band around the threshold"
    expected = {
        0.1: [YIELDED, HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, YIELDED],
        0.0: [HOLDS_EXACT, HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, YIELDED],
        100.0: [YIELDED, YIELDED, HOLDS_EXACT_UNVERIFIED, YIELDED],
    }
    for threshold, found in zip(thresholds, results, strict=True):
        decided = sender_priorities(
            reference.distance_sq, reference.norm_sq, positions, chunk_size=32, threshold=threshold
        )
        assert found["priority"] == expected[threshold] == decided
        check_numbers(found, reference)
        assert torch.equal(found["exact"], results[0]["exact"]), "the threshold changes decisions only"
        assert not found["exact"][0, 3].any() and not found["guess"][0, 3].any()


def test_decisions_follow_thresholds_close_to_the_ratio(sim_device):
    """Where the squared distance is 1.2% below its bound a guess is accepted, 1.2% above it is not: only within
    1% of the bound the decision may differ from the reference's."""
    case = Case(4, 1, 64, 96, 32, users=3)
    q, k, v = case.random(7)
    # The narrower the values spread around one they have in common, the better the guess.
    common = torch.randn(1, 1, 1, case.head_dim, generator=torch.Generator().manual_seed(0))
    v = (common + torch.tensor([0.6, 1.5, 6.0]).view(-1, 1, 1, 1) * v).bfloat16()
    positions = [95, 80, 64]
    reference = speculative_flash_decode_reference(q, k, v, positions, chunk_size=32, guess_range=SHORT)
    ratios = (reference.distance_sq / reference.norm_sq).sqrt().tolist()
    logger.info(f"ratios {ratios}")
    assert 0.05 < ratios[0] < ratios[1] / 2 < ratios[2] / 4, "each clear of the others' bands"
    thresholds = [factor * ratio for ratio in ratios for factor in (0.994, 1.006)]
    options = {"positions": positions, "priority": HOLDS_EXACT, "guess_range": SHORT}
    runs = [options | {"threshold": each} for each in thresholds]
    results, _ = sim_device(CHIP).run(speculative_body, case, q, k, v, runs, timeout=LIMIT_S)
    for threshold, found in zip(thresholds, results, strict=True):
        expected = [YIELDED if ratio < threshold else HOLDS_EXACT for ratio in ratios]
        assert found["priority"] == expected, (threshold, ratios)
    check_numbers(results[0], reference)


# For one user after the other the bits of elements of keys, by token and element. The guess reads tokens 3 and 205 and
# not 100.
NO_NUMBERS = [
    {(3, 5): 0x7FC0},
    {(205, 63): 0xFFC0},
    {(100, 31): 0xFF81},
    {(100, 32): 0xFF80},
    {(205, 0): 0x7F80, (205, 32): 0xFF80},  # which do not cancel
    {(100, element): 0xFFFF for element in range(64)},
    {},
    {(211, 7): 0x7FC0},  # behind the position
]


def spoil(keys: torch.Tensor, head: int) -> None:
    """NO_NUMBERS into the keys [users, kv heads, tokens, head_dim] of a head."""
    for user, elements in enumerate(NO_NUMBERS):
        for place, bits in elements.items():
            set_bits(keys, (user, head, *place), bits)


@pytest.mark.parametrize(
    "heads, kv_heads, workers, cache",
    [
        (1, 1, 2, "bfloat16"),
        (4, 1, 1, "bfloat8_b"),
        (32, 1, 2, "bfloat16"),
        pytest.param(8, 2, 3, "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_a_visible_key_that_is_no_number_is_never_accepted(sim_device, heads, kv_heads, workers, cache):
    """At a threshold that everything else passes; the guess and the exact result say so, and other users are well."""
    case = Case(heads, kv_heads, 64, 256, 32, users=8, cache=cache, workers=workers, grid=(4, 2))
    q, k, v = case.random(3)
    spoil(k, kv_heads - 1)
    run = {"positions": [210] * 8, "threshold": 1e3, "priority": [HOLDS_EXACT] * 8}
    device = sim_device(CHIP)
    (found,), _ = device.run(speculative_body, case, q, k, v, [run], timeout=LIMIT_S)
    well = [user for user, elements in enumerate(NO_NUMBERS) if all(token > 210 for token, _ in elements)]
    assert found["priority"] == [YIELDED if user in well else HOLDS_EXACT for user in range(8)]
    (exact,), _ = device.run(exact_body, case, q, k, v, [run], timeout=LIMIT_S)
    of_guess = [0, 1, 4]
    for user in range(8):
        assert bool(found["norm_sq"][user].isfinite()) == (user in well)
        for name, result in (("exact", found["exact"]), ("guess", found["guess"]), ("exact variant", exact)):
            spoiled = user not in well and (name != "guess" or user in of_guess)
            assert bool(result[0, user].isfinite().all()) != spoiled, (user, name)


def gate_body(device, case: Case, q, k, v, run):
    """The results of `run` while the compute gate is closed, and then while it is open.

    In this order what the closed gate stopped cannot be hidden by results that the other call left in memory.
    """
    from tests.tt_kernels.compute_gate import sgdc_programs
    from tt_kernels.compute_gate.op import clear_compute_gate, skip_compute

    clear_compute_gate(device)
    results = []
    for value in (YIELDED, HOLDS_EXACT):
        with skip_compute(sgdc_programs.priorities(device, value), users=1):
            results += speculative_body(device, case, q, k, v, [run])[0]
    return results


def test_a_closed_gate_does_not_stop_it(sim_device):
    case = Case(2, 1, 64, 96, 32)
    run = {"positions": [95], "priority": YIELDED, "threshold": 0.0}
    gate_closed, gate_open = sim_device(CHIP).run(gate_body, case, *case.random(7), run, timeout=LIMIT_S)
    assert gate_closed["exact"].any() and not torch.equal(gate_closed["exact"], gate_closed["guess"])
    for name in ("exact", "guess", "distance_sq", "norm_sq"):
        assert torch.equal(gate_open[name], gate_closed[name]), name
    assert gate_open["priority"] == gate_closed["priority"] == [HOLDS_EXACT]
