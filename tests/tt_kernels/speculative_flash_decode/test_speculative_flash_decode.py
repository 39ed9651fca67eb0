# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The speculative flash decode kernels on the simulated N150 against the torch reference."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from loguru import logger

from tests.tt_kernels.speculative_flash_decode.flash_decode_checks import (
    LIMIT_S,
    PCC,
    SHORT,
    check_numbers,
    check_result,
    check_speculative,
)
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import (
    CHIP,
    REFUSED,
    Case,
    exact_body,
    refused_body,
    repeats_body,
    speculative_body,
)
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED
from tt_kernels.speculative_flash_decode.checks import MAX_SCALE, MIN_SCALE
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.reference import sender_priorities, speculative_flash_decode_reference

pytestmark = pytest.mark.sim

HUGE_TOLERANCE = 0.02  # where one value is most of a result

# Cached tokens at every boundary of a tile and of a chunk, bypassed, without a middle, not a multiple, the
# maximum. A call takes them as its users' positions, each user with a cache of its own.
CHUNKS_OF_64 = [[1, 31, 32, 33, 63, 64], [65, 127, 128, 129, 150, 192]]
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
