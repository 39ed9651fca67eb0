# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The speculative flash decode kernels on the simulated N150 against the torch reference."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from loguru import logger

from tests.support.bfloat16_bits import set_bits
from tests.support.pcc import correlation
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import (
    CHIP,
    REFUSED,
    Case,
    exact_body,
    guess_body,
    refused_body,
    repeats_body,
    speculative_body,
    stock_body,
)
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, YIELDED
from tt_kernels.speculative_flash_decode.checks import MAX_SCALE, MIN_SCALE
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.reference import (
    guess_positions,
    sender_priorities,
    speculative_flash_decode_reference,
)

pytestmark = pytest.mark.sim

LIMIT_S = 900
PCC = {"bfloat16": 0.999, "bfloat8_b": 0.99}
# Both results are bfloat16: below a distance of 2% of the norm their rounding shows in it.
NORM_TOLERANCE, ROUNDING = 0.01, 2e-5
HUGE_TOLERANCE = 0.02  # where one value is most of a result


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


# Cached tokens at every boundary of a tile and of a chunk, bypassed, without a middle, not a multiple, the
# maximum. A call takes them as its users' positions, each user with a cache of its own.
CHUNKS_OF_64 = [[1, 31, 32, 33, 63, 64], [65, 127, 128, 129, 150, 192]]
SHORT = GuessRange(32, 32)  # leaves keys out from 65 cached tokens on, the default in chunks of 32 from 96 on
CHUNKS_OF_32 = [[1, 31, 32, 33, 64, 65, 90, 128]]
BOUNDARIES = {
    "4/1": (Case(4, 1, 64, 192, 64, users=6), CHUNKS_OF_64),
    "1/1": (Case(1, 1, 128, 128, 32, users=8, workers=3, grid=(4, 1)), CHUNKS_OF_32),
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


@pytest.mark.parametrize("cache", ["bfloat16", "bfloat8_b"])
@pytest.mark.parametrize("exact_variant", [False, True], ids=["speculative", "exact"])
def test_what_lies_behind_the_position_does_not_matter(sim_device, cache, exact_variant):
    """Finite garbage, infinities and NaN in keys and values, bit for bit; in the position's tile and behind it."""
    case = Case(4, 1, 64, 128, 32, users=2, cache=cache)
    q, k, v = case.random(11)
    positions = [70, 97]  # the tails of a tile's first and second face
    clean, dirty = [], []
    for part in (k, v):
        clean.append(part.clone())
        dirty.append(part.clone())
        for user, position in enumerate(positions):
            behind = slice(position + 1, None)
            clean[-1][user, :, behind] = 0
            garbage = torch.tensor([1e8, -1e38, math.inf, -math.inf, math.nan]).bfloat16()
            if cache == "bfloat8_b":
                garbage = garbage[:2]  # it has no others
            rows = dirty[-1][user, :, behind]
            rows[...] = garbage[torch.arange(rows.numel()) % len(garbage)].view(rows.shape)
    body = exact_body if exact_variant else speculative_body
    run = [{"positions": positions}]
    found = [sim_device(CHIP).run(body, case, q, *kv, run, timeout=LIMIT_S)[0][0] for kv in (clean, dirty)]
    if exact_variant:
        found = [{"exact": each} for each in found]
    for name, expected in found[0].items():
        if isinstance(expected, torch.Tensor):
            assert expected.isfinite().all() and torch.equal(found[1][name], expected), name


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


def test_one_huge_value_keeps_the_looser_tolerance(sim_device):
    """A value a thousand times the others is most of norm and distance: their errors are then those of one bfloat16
    result and one bfloat16 weight, squared."""
    case = Case(4, 1, 64, 96, 32, users=6)
    q, k, v = case.random(3)
    for user in range(case.users):
        v[user, 0, 40 if user % 2 else 3, 7 * user] = 1000 * (1 + user / 7)
    positions = [95, 90, 80, 77, 70, 64]
    (found,), _ = sim_device(CHIP).run(
        speculative_body, case, q, k, v, [{"positions": positions, "guess_range": SHORT}], timeout=LIMIT_S
    )
    reference = speculative_flash_decode_reference(q, k, v, positions, chunk_size=32, guess_range=SHORT)
    for name in ("norm_sq", "distance_sq"):
        expected = getattr(reference, name)
        error = (found[name].double() - expected).abs() / expected
        logger.info(f"{name}: relative errors {error.tolist()}")
        assert (error <= HUGE_TOLERANCE).all()


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


def test_fewer_keys_at_once_than_a_chunk_of_the_guess_has(sim_device):
    """Not a divisor of it either: both ends and the middle are processed as 64 and 32 keys."""
    case = Case(4, 1, 64, 320, 96, users=2, workers=1, key_chunk=64)
    check_speculative(sim_device(CHIP), case, [[299, 150]])


@pytest.mark.parametrize(
    "guess_range", [GuessRange(32, 32, True), GuessRange(32, 96), GuessRange(64, 32, True)], ids=str
)
def test_guess_ranges(sim_device, guess_range):
    """Just after a boundary of tiles, in the middle of one, at its end; and bypassed. Against the reference."""
    case = Case(4, 1, 64, 192, 32, users=4, workers=2, grid=(3, 1))
    positions = [160, 144, 191, 40]
    (found,) = check_speculative(
        sim_device(CHIP), case, [positions], guess_range=guess_range, threshold=0.5, priority=[HOLDS_EXACT] * 4
    )
    distance, norm = found["distance_sq"], found["norm_sq"]
    expected = sender_priorities(distance, norm, positions, chunk_size=32, threshold=0.5, guess_range=guess_range)
    assert found["priority"] == expected and expected[3] == HOLDS_EXACT_UNVERIFIED


def test_a_chunk_that_l1_does_not_hold_at_once(sim_device):
    """By default as many keys at once as fit."""
    check_speculative(sim_device(CHIP), Case(2, 1, 128, 4096, 4096), [[70]])


def check_exact(device, case: Case, positions: list[list[int]], seed: int = 1) -> list[torch.Tensor]:
    q, k, v = case.random(seed)
    results, caches = device.run(
        exact_body, case, q, k, v, [{"positions": each} for each in positions], timeout=LIMIT_S
    )
    for each, found in zip(positions, results, strict=True):
        reference = speculative_flash_decode_reference(q, *caches, each, chunk_size=case.chunk_size)
        check_result(f"exact variant {case} {each}", found, reference.exact, PCC[case.cache])
    return results


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


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 7])
def test_partial_results_of_any_number_of_workers_are_merged(sim_device, workers):
    """2 tiles, which are the guess alone, and 8, of which each of seven workers has one. Two heads of either user
    follow one another in a group, so that slots are used again. A second call gives the same bits."""
    grid = (4, 2) if workers > 3 else (workers + 1, 1)
    case = Case(4, 2, 64, 256, 32, users=2, workers=workers, grid=grid)
    first, *others = check_speculative(sim_device(CHIP), case, [[32, 249]] * (2 if workers == 7 else 1))
    for again in others:
        for name in ("exact", "guess", "distance_sq", "norm_sq"):
            assert torch.equal(first[name], again[name]), name


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


def test_fifty_repeats_are_bit_equal(sim_device):
    """Ten calls for five users with the same inputs, which follow each other without a look at the results.

    Three workers share each head, whose partial results reach the reducer in any order.
    """
    users, calls = 5, 10
    case = Case(2, 1, 64, 128, 32, users=users, workers=3, grid=(4, 1))
    q, k, v = replace(case, users=1).random(4)
    shared = (q.repeat(1, users, 1, 1), k.repeat(users, 1, 1, 1), v.repeat(users, 1, 1, 1))
    results = sim_device(CHIP).run(repeats_body, case, *shared, [97] * users, calls, timeout=LIMIT_S)
    reference = speculative_flash_decode_reference(q, k, v, [97], chunk_size=32)
    repeats = [
        (found["exact"][:, user], found["guess"][:, user])
        + (found["distance_sq"][user], found["norm_sq"][user], torch.tensor(found["priority"][user]))
        for found in results
        for user in range(users)
    ]
    check_result("repeats", repeats[0][0], reference.exact[:, 0], PCC[case.cache])
    assert len(repeats) == 50
    for index, found in enumerate(repeats):
        assert all(torch.equal(value, first) for value, first in zip(found, repeats[0], strict=True)), index


def test_shapes_are_arguments_of_one_program(sim_device):
    """Heads and cache lengths that leave the buffers alone: the second call must not run with the first's
    numbers."""
    device = sim_device(CHIP)
    device.run(forget_programs_body)
    check_speculative(device, Case(4, 1, 64, 128, 32), [[64]])
    assert device.run(count_programs_body) == 1
    check_speculative(device, Case(8, 1, 64, 256, 32), [[130]])
    assert device.run(count_programs_body) == 1


def test_another_fidelity_keeps_the_tolerances(sim_device):
    check_speculative(sim_device(CHIP), Case(4, 1, 64, 96, 32, fidelity="HiFi2"), [[70]], seed=1)


def test_scaled_scores_of_ten_thousand_at_either_end_of_the_scales(sim_device):
    """The largest that are supported. Their bfloat16 row maxima are off by exponents of either sign."""
    case = Case(4, 1, 64, 96, 32)
    q, k, v = case.random(0)
    scores = q[0, 0].double() @ k[0, 0, :71].double().T
    for scale in (MIN_SCALE, MAX_SCALE):
        factor = (9900 / scale / scores.abs().max()).sqrt()
        large_q, large_k = ((part.double() * factor).bfloat16() for part in (q, k))
        scaled = scale * (large_q[0, 0].double() @ large_k[0, 0, :71].double().T)
        first, second = scaled.topk(2).values.T
        assert 9700 < scaled.max() < 1e4 and -1e4 < scaled.min() < -9700
        assert (first - second).min() > 50, "far enough apart for what TF32 holds of a score"
        off = (first / scale).bfloat16().double() * scale - first
        logger.info(f"scale {scale}: highest scores {first.tolist()}, their maxima off by {off.tolist()}")
        assert off.abs().max() > 15
        run = [{"positions": [70], "scale": scale}]
        (found,), caches = sim_device(CHIP).run(speculative_body, case, large_q, large_k, v, run, timeout=LIMIT_S)
        reference = speculative_flash_decode_reference(large_q, *caches, [70], chunk_size=32, scale=scale)
        for name in ("exact", "guess"):
            check_result(f"scale {scale} {name}", found[name], getattr(reference, name), PCC[case.cache])
        check_numbers(found, reference)


def forget_programs_body(device):
    device.clear_program_cache()


def count_programs_body(device) -> int:
    return device.num_program_cache_entries()


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


def test_refused_before_anything_runs(sim_device):
    messages = {
        "deallocated query": ("UnsupportedError", "q has been deallocated"),
        "deallocated priority": ("UnsupportedError", "priority has been deallocated"),
        "config in words": ("UnsupportedError", "program_config must be a ProgramConfig, it is a str"),
        "exact config in words": ("UnsupportedError", "program_config must be a ProgramConfig, it is a dict"),
        "peer in words": ("UnsupportedError", "peer must be a Peer, it is a str"),
        "no origin": ("UnsupportedError", "origin must be two integers (x, y), got None"),
        "no fidelity": ("UnsupportedError", "math_fidelity must be one of HiFi2, HiFi3, got None"),
        "one priority tensor": ("UnsupportedError", "both ranks were given the same priority tensor"),
        "no config": ("UnsupportedError", "program_config must be a ProgramConfig, it is a NoneType"),
        "host query": ("UnsupportedError", "q must be on device, it is in host memory"),
        "small grid": ("UnsupportedError", "need 2 cores, the grid has 1"),
        "grid outside": ("UnsupportedError", "a grid of 4x1 cores at (1, 0) is not within the device's 4x2"),
        "tiled priority": ("UnsupportedError", "priority must be uint32, row-major"),
        "priority in torch": ("UnsupportedError", "priority must be a ttnn.Tensor, not torch.Tensor"),
        "query in torch": ("UnsupportedError", "q must be a ttnn.Tensor, it is a Tensor"),
        "too many keys at once": ("UnsupportedError", "key_chunk 4096 with head_dim 128"),
        "half a worker": ("UnsupportedError", "workers_per_head must be an integer of at least 1, got 2.5"),
        "half a core": ("UnsupportedError", "grid must be two integers (x, y), got (1.5, 2)"),
        "sharded result": ("UnsupportedError", "memory_config must be interleaved, it is HEIGHT_SHARDED"),
        "result memory in words": (
            "UnsupportedError",
            "memory_config must be a ttnn.MemoryConfig, it is a str",
        ),
        "threshold in words": ("UnsupportedError", "threshold must be from 0 to 1e+06, got '0.1'"),
        "scale in words": ("UnsupportedError", "scale must be from 0.0001 to 100, got '0.1'"),
        "two fidelities": ("UnsupportedError", "math_fidelity HiFi3 and HiFi2: they must be equal"),
        "two key chunks": ("UnsupportedError", "a key_chunk of 64 and 32: they must be equal"),
        "no patience": ("UnsupportedError", "a timeout is a positive, finite number of seconds, not 0"),
        "shared cores": ("UnsupportedError", "core (0, 0) belongs to both ranks of the pair"),
        "gated pair": (
            "GatedRegionError",
            "speculative_flash_decode_pair (cluster_axis=None) is a cross-chip op",
        ),
    }
    assert messages.keys() == REFUSED.keys()
    for build, (kind, text) in messages.items():
        found = sim_device(CHIP).run(refused_body, build)
        assert found is not None and found[0] == kind and text in found[1], (build, found)
