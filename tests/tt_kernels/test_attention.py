# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention of one token and of token trees, with a guess and without, on the simulated N150 against the oracle."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loguru import logger

from perf.lib.tensors import errors_of
from tests.support.run_op import In, Make, check_refused, run_ops
from tests.tt_kernels.attention import (
    BOTH,
    CHIP,
    PCC,
    SHORT,
    Case,
    binary,
    chain,
    check,
    check_rows,
    garbage_behind,
    padded,
    random_tree,
    run_speculating,
    star,
    unread_is_nan,
    wanted,
)
from tt_kernels.common.attention_checks import MAX_SCALE, MIN_SCALE
from tt_kernels.speculative_flash_decode.guess_range import GuessRange

pytestmark = pytest.mark.sim

# Tokens before the root at every boundary of a tile and of a chunk, bypassed, without a middle, the end of the cache.
ENDS = [0, 30, 31, 32, 63, 64, 89, 127]
SHAPES = {
    "1: 4/1": (Case(1, 4, 1, 64, 192, users=6), [[0, 30, 31, 32, 62, 63], [64, 126, 127, 128, 149, 191]], 64),
    "1: 1/1": (Case(1, 1, 1, 128, 128, users=8, workers=3, grid=(4, 1)), [ENDS], 32),
    "1: 8/2": (Case(1, 8, 2, 64, 128, users=8, cache="bfloat8_b", grid=(3, 1)), [ENDS], 32),
    "1: 32/8": (Case(1, 32, 8, 64, 96, users=4, grid=(4, 2)), [[0, 32, 63, 89]], 32),
    "1: 3 workers, bfloat8_b": (
        Case(1, 4, 1, 128, 256, cache="bfloat8_b", workers=3, grid=(2, 2)),
        [[199]],
        64,
    ),
    # As many users as there may be, whose jobs two groups of three workers take in turn.
    "4: 2/1": (
        Case(4, 2, 1, 64, 96, users=8, grid=(4, 2), workers=3, key_chunk=32),
        [[90, 0, 31, 32, -1, 64, 75, 50]],
        32,
    ),
    "5: 8/2": (Case(5, 8, 2, 128, 96, users=3, cache="bfloat8_b", grid=(3, 1), key_chunk=64), [[33, 0, 61]], 32),
    "8: 4/1": (Case(8, 4, 1, 64, 192, grid=(2, 1), key_chunk=64), [[150], [159], [127], [62], [63]], 32),
    # Each head has two query tiles; a skipped user, and one whose cache is the tree alone.
    "16: 8/2": (
        Case(16, 8, 2, 64, 256, users=2, grid=(4, 2), workers=3, key_chunk=64),
        [[200, 97], [-1, 0]],
        32,
    ),
    # Chunks that the rest of the guess's end, or of the middle, goes into; the tree within the last tile of its root,
    # or in the next one too.
    "16: rest": (Case(16, 4, 1, 64, 512, key_chunk=128), [[400], [440], [471]], 128),
}


def test_workers_on_either_side_of_the_middle_column(sim_device):
    """Those beyond it read some banks through other tiles (dram_tiles.hpp)."""
    case = Case(1, 4, 1, 128, 512, cache="bfloat8_b", workers=7, grid=(8, 1))
    run_speculating(sim_device("8x1"), case, [{"at": [500], "threshold": 0.6}])


@pytest.mark.parametrize("case, calls, chunk", SHAPES.values(), ids=SHAPES)
def test_every_boundary_of_tiles_chunks_and_the_cache(sim_device, case, calls, chunk):
    """One group of cores takes the heads of several users in turn, or several groups share them."""
    ends = {"chunk_size": chunk, "guess_range": GuessRange.both_ends(chunk), "threshold": 0.6}
    results = run_speculating(sim_device(CHIP), case, [{"at": at} | ends for at in calls])
    for at, found in zip(calls, results, strict=True):
        for user, position in enumerate(at):
            if not case.trees and 0 <= position < 2 * chunk:  # the guess reads it all
                assert torch.equal(found["exact"][0, user], found["guess"][0, user]), position
                assert found["distance_sq"].flatten()[user] == 0, position


WORKERS = {
    # 2 tiles, which are the guess alone, and 8, of which each of seven workers has one. Two heads of either user follow
    # one another in a group, so that slots are used again.
    **{
        f"1: {workers}": (
            Case(1, 4, 2, 64, 256, users=2, workers=workers, grid=(4, 2) if workers > 3 else (workers + 1, 1)),
            [[32, 249]] * (2 if workers == 7 else 1),
            BOTH,
        )
        for workers in (1, 2, 4, 5, 7)
    },
    # Most of seven have nothing: partial results pass through them. Of four the first two share the guess, which is
    # merged before the rest; or the first has it: beside shares of the middle, and all there is.
    "4: 7": (Case(4, 2, 1, 64, 256, grid=(4, 2), workers=7, key_chunk=32), [[0], [30], [96], [129], [250]], BOTH),
    "16: 4": (Case(16, 4, 1, 64, 512, grid=(4, 2), workers=4, key_chunk=64), [[490], [150], [0]], GuessRange(192, 224)),
}


@pytest.mark.parametrize("case, calls, guess_range", WORKERS.values(), ids=WORKERS)
def test_partial_results_of_any_number_of_workers_are_merged(sim_device, case, calls, guess_range):
    options = {"threshold": 0.6, "guess_range": guess_range}
    results = run_speculating(sim_device(CHIP), case, [{"at": at} | options for at in calls])
    if calls[0] in calls[1:]:  # a second call gives the same bits
        for name in ("exact", "guess", "distance_sq", "norm_sq"):
            assert torch.equal(results[0][name], results[1][name]), name


LARGE = {
    # Several passes of several query tiles, the last of them of fewer; more jobs than cores. A chain of 64.
    "70": (
        Case(70, 2, 1, 64, 160, users=2, query_tiles=2, grid=(4, 1), key_chunk=64),
        [33, 90],
        [padded(chain(64), 70), random_tree(70, 3, 0.02)],
    ),
    "1000 tokens": (Case(12, 4, 1, 64, 1024, key_chunk=256, grid=(1, 1)), [1000], [random_tree(12, 4)]),
    # Visiting times of 8 bits, all rows of the mask; nodes that see nothing in the first chunks of an empty prefix.
    "256": (
        Case(256, 1, 1, 64, 288, query_tiles=4, key_chunk=96, fidelity="HiFi2"),
        [0],
        [padded(random_tree(200, 5, 0.05), 256)],
    ),
    # Workers without keys, which the prefix of a user decides; more heads than groups.
    "4 workers": (
        Case(9, 4, 1, 64, 160, users=4, workers=4, grid=(4, 1), key_chunk=32),
        [120, 5, -1, 60],
        [random_tree(9, 7), binary(9), chain(9), star(9)],
    ),
    # Slots of two query tiles, of which the last pass fills one; two groups of three.
    "3 workers": (
        Case(20, 4, 1, 128, 160, users=2, workers=3, query_tiles=2, grid=(3, 2), key_chunk=64),
        [130, 90],
        [random_tree(20, 8), binary(20)],
    ),
}


def check_exact(worker, case: Case, at: list[int], parents: list[list[int]], memory: str = "DRAM", **options) -> None:
    """Run a call in the mode exact and hold it to the oracle."""
    q, k, v = case.random()
    found = run_ops(worker, [case.call("exact", case.inputs(q, k, v, memory=memory), at, parents, **options)])[0]
    expected = wanted(case, q, k, v, at, parents, **options).exact
    check_rows(f"{case} {options}", case.rows(found["out"]), expected, PCC[case.cache], at)


@pytest.mark.parametrize("case, at, parents", LARGE.values(), ids=LARGE)
def test_large_trees(sim_device, case, at, parents):
    check_exact(sim_device(CHIP), case, at, parents)


def test_jobs_of_several_passes_with_a_guess(sim_device):
    """Jobs of three query tiles and of one, head_dim 128, quantised caches, other sizes at the two ends."""
    case = Case(64, 2, 1, 128, 192, cache="bfloat8_b", grid=(3, 1), workers=2, query_tiles=3, key_chunk=32)
    call = {"at": [120], "parents": [random_tree(64, 5, 0.0)], "threshold": 0.7, "guess_range": GuessRange(32, 64)}
    run_speculating(sim_device(CHIP), case, [call])


@settings(max_examples=2)
@given(data=st.data())
def test_any_trees(sim_device, data):
    """Eight users with trees and prefixes of their own."""
    case = Case(10, 2, 1, 64, 64, users=8, grid=(4, 2), key_chunk=64)
    at = data.draw(st.lists(st.integers(-1, 54), min_size=8, max_size=8))
    sizes = [data.draw(st.integers(1, 10)) for _ in range(8)]
    parents = [padded([-1] + [data.draw(st.integers(-1, node - 1)) for node in range(1, size)], 10) for size in sizes]
    check_exact(sim_device(CHIP), case, at, parents)


@pytest.mark.parametrize("cache", ["bfloat16", "bfloat8_b"])
@pytest.mark.parametrize("nodes, mode", [(1, "speculate"), (6, "exact")])
def test_what_lies_behind_the_nodes_does_not_matter(sim_device, nodes, mode, cache):
    """Finite garbage, infinities and NaN in keys and values, bit for bit; in the last node's tile and behind it."""
    case, at = Case(nodes, 4, 1, 64, 128, users=2, cache=cache, key_chunk=32), [70, 97]
    q, k, v = case.random(11)
    calls = []
    for clean in (True, False):
        caches = [garbage_behind(case, part, at, clean) for part in (k, v)]
        calls.append(case.call(mode, case.inputs(q, *caches), at))
    clean, dirty = run_ops(sim_device(CHIP), calls)
    for name, expected in clean.items():
        if isinstance(expected, torch.Tensor):
            assert expected.isfinite().all() and torch.equal(dirty[name], expected), name


def test_one_huge_value_keeps_the_looser_tolerance(sim_device):
    """A value a thousand times the others is most of norm and distance: their errors are then those of one bfloat16
    result and one bfloat16 weight, squared."""
    case, at = Case(1, 4, 1, 64, 96, users=6), [95, 90, 80, 77, 70, 64]
    q, k, v = case.random(3)
    for user in range(case.users):
        v[user, 0, 40 if user % 2 else 3, 7 * user] = 1000 * (1 + user / 7)
    found = run_ops(sim_device(CHIP), [case.call("speculate", case.inputs(q, k, v), at, guess_range=SHORT)])[0]
    expected = wanted(case, q, k, v, at, guess_range=SHORT)
    for name in ("norm_sq", "distance_sq"):
        error = (found[name].flatten().double() - getattr(expected, name)).abs() / getattr(expected, name)
        logger.info(f"{name}: relative errors {error.tolist()}")
        assert (error <= 0.02).all()


def test_positions_past_the_cache_count_as_its_last(sim_device):
    case = Case(1, 4, 1, 64, 64, users=3)
    q, k, v = case.random()
    same = [q[:, :, :1].expand_as(q), k[:1].expand_as(k), v[:1].expand_as(v)]
    found = run_ops(sim_device(CHIP), [case.call("speculate", case.inputs(*same), [63, 64, 100_000])])[0]
    assert found["exact"].any()
    for user in (1, 2):
        assert torch.equal(found["exact"][0, user], found["exact"][0, 0])


def test_chunks_of_keys_of_any_size(sim_device):
    """Fewer keys at once than a chunk of the guess has, and not a divisor of it: both ends and the middle are processed
    as 64 and 32 keys. And a chunk that L1 does not hold at once: as many as fit."""
    device = sim_device(CHIP)
    ends = {"chunk_size": 96, "guess_range": GuessRange.both_ends(96)}
    run_speculating(device, Case(1, 4, 1, 64, 320, users=2, key_chunk=64), [{"at": [299, 150]} | ends])
    whole = {"chunk_size": 4096, "guess_range": GuessRange.both_ends(4096)}
    run_speculating(device, Case(1, 2, 1, 128, 4096, workers=None), [{"at": [70]} | whole])


@pytest.mark.parametrize(
    "guess_range", [GuessRange(32, 32, True), GuessRange(32, 96), GuessRange(64, 32, True)], ids=str
)
def test_guess_ranges(sim_device, guess_range):
    """Just after a boundary of tiles, in the middle of one, at its end; and bypassed."""
    case = Case(1, 4, 1, 64, 192, users=4, workers=2, grid=(3, 1))
    run_speculating(sim_device(CHIP), case, [{"at": [160, 144, 191, 40], "guess_range": guess_range, "threshold": 0.5}])


def test_the_guess_alone(sim_device):
    """Whatever lies outside it, NaN too, is not read. A user without speculation, one whose two ends meet, a skipped
    one, and two at and behind a boundary of tiles."""
    case, guess_range = Case(1, 6, 2, 64, 192, users=5, workers=3, grid=(3, 1)), GuessRange(64, 32)
    at = [40, 95, -1, 159, 160]
    q, k, v = case.random(5)
    dirty = [unread_is_nan(part, at, guess_range) for part in (k, v)]
    found = run_ops(sim_device(CHIP), [case.call("guess", case.inputs(q, *dirty), at, guess_range=guess_range)])[0]
    expected = wanted(case, q, k, v, at, guess_range=guess_range).guess
    check_rows("guess alone", case.rows(found["out"]), expected, PCC[case.cache], at)


def test_errors_of_a_worker_that_goes_through_128_chunks(sim_device):
    """As many as one of eight workers has of 128K keys in chunks of 128. Were the state cut off where the matrix unit
    reads it, each chunk would take half a place of 9 bits of it: 4 % in all when scores are equal."""
    case = Case(1, 4, 1, 64, 4096, workers=1, grid=(1, 1), key_chunk=32)
    q, k, v = case.random(5)
    positive = 1 + torch.rand(v.shape, generator=torch.Generator().manual_seed(6)).bfloat16()
    cases = [(torch.zeros_like(q), positive, 0.003), (q, v, 0.006)]
    calls = [case.call("exact", case.inputs(query, k, values), [4095]) for query, values, _ in cases]
    for found, (query, values, most) in zip(run_ops(sim_device(CHIP), calls), cases, strict=True):
        errors = errors_of(case.rows(found["out"]), wanted(case, query, k, values, [4095]).exact)
        logger.info(f"limit {most}: {errors}")
        assert errors["error"] <= most and abs(errors["bias"]) <= 0.002, most


def test_scaled_scores_of_ten_thousand_at_either_end_of_the_scales(sim_device):
    """The largest that are supported. Their bfloat16 row maxima are off by exponents of either sign."""
    case = Case(1, 4, 1, 64, 96)
    q, k, v = case.random(0)
    scores = q[0, :, 0].double() @ k[0, 0, :71].double().T
    for scale in (MIN_SCALE, MAX_SCALE):
        factor = (9900 / scale / scores.abs().max()).sqrt()
        large_q, large_k = ((part.double() * factor).bfloat16() for part in (q, k))
        scaled = scale * (large_q[0, :, 0].double() @ large_k[0, 0, :71].double().T)
        first, second = scaled.topk(2).values.T
        assert 9700 < scaled.max() < 1e4 and -1e4 < scaled.min() < -9700
        assert (first - second).min() > 50, "far enough apart for what TF32 holds of a score"
        off = (first / scale).bfloat16().double() * scale - first
        logger.info(f"scale {scale}: highest scores {first.tolist()}, their maxima off by {off.tolist()}")
        assert off.abs().max() > 15
        inputs = case.inputs(large_q, large_k, v)
        found = run_ops(sim_device(CHIP), [case.call("speculate", inputs, [70], scale=scale)])[0]
        expected = wanted(case, large_q, large_k, v, [70], scale=scale)
        check(case, found, expected, [70])


def test_other_settings_keep_the_tolerances(sim_device):
    """Another fidelity; queries of a tree in L1 and another scale."""
    device = sim_device(CHIP)
    run_speculating(device, Case(1, 4, 1, 64, 96, fidelity="HiFi2"), [{"at": [70]}], seed=1)
    check_exact(device, Case(4, 4, 1, 64, 128, key_chunk=64), [40], [binary(4)], memory="L1", scale=0.5)


@pytest.mark.parametrize("mode", ["exact", "guess"])
def test_a_result_in_l1_is_the_one_in_dram(sim_device, mode):
    """Two users, one of them skipped in the second pair of calls, whose rows are zeros in either memory."""
    case = Case(1, 6, 2, 64, 128, users=2, workers=3, grid=(4, 2))
    inputs = case.inputs(*case.random(3))
    calls = [
        case.call(mode, inputs, at, memory_config=Make(f"ttnn:{memory}_MEMORY_CONFIG"))
        for at in ([127, 40], [70, -1])
        for memory in ("DRAM", "L1")
    ]
    results = [found["out"] for found in run_ops(sim_device(CHIP), calls)]
    for in_dram, in_l1 in (results[:2], results[2:]):
        assert torch.equal(in_dram, in_l1) and in_dram.any()
    assert not results[3][0, 1].any()


@pytest.mark.parametrize("nodes, mode", [(1, "speculate"), (4, "exact"), (8, "speculate")])
def test_shapes_positions_trees_and_thresholds_are_arguments_of_one_program(sim_device, nodes, mode):
    """The second call must not run with the first's numbers, neither data nor what leaves the buffers alone."""
    device = sim_device(CHIP)
    small = Case(nodes, 2, 1, 64, 128, users=2, key_chunk=32, grid=(2, 1))
    large = (
        replace(small, max_tokens=192) if mode == "speculate" and nodes > 1 else replace(small, heads=4, max_tokens=192)
    )
    forms = [[chain(nodes), star(nodes)], [star(nodes), binary(nodes)]]
    calls, expected, entries = [], [], set()
    for case, at, parents in ((small, [5, 33], forms[0]), (small, [33, -1], forms[1]), (large, [90, 0], forms[0])):
        q, k, v = case.random(8)
        options = {} if mode == "exact" else {"guess_range": SHORT if case is small else BOTH, "threshold": 0.1 + at[0]}
        calls.append(case.call(mode, case.inputs(q, k, v), at, parents, **options))
        expected.append((case, at, wanted(case, q, k, v, at, parents).exact))
    for found, (case, at, right) in zip(run_ops(device, calls), expected, strict=True):
        rows = case.rows(found["out" if mode == "exact" else "exact"])
        check_rows(f"{case} {at}", rows, right, PCC[case.cache], at)
        entries.add(found["entries"])
    assert len(entries) == 1, "a call has compiled another program"


# ------------------------------------------------------------------------------ refusals


ONE, TREE = Case(workers=None, max_tokens=256), Case(8, key_chunk=64)


def configured(**changes) -> dict:
    return {"program_config": ONE.config(**changes)}


SPECULATING = {
    "program_config must be a ProgramConfig, it is a str": {"program_config": "HiFi4"},
    "peer must be a Peer, it is a str": {"peer": "the next chip"},
    "origin must be two integers (x, y), got None": configured(origin=None),
    "grid must be two integers (x, y), got (1.5, 2)": configured(grid=(1.5, 2)),
    "threshold must be from 0 to 1e+06, got '0.1'": {"threshold": "0.1"},
    "priority must be UINT32 ROW_MAJOR": {"priority": In(torch.zeros(1, 1, 32, 32))},
}
EXACT = {
    "q must be on device, it is in host memory": {0: In(torch.zeros(1, 1, 4, 64), memory="HOST")},
    "a grid of 4x1 cores at (1, 0) is not within the device's 4x2": configured(grid=(4, 1), origin=(1, 0)),
    "memory_config must be interleaved, it is HEIGHT_SHARDED": {
        "memory_config": Make("ttnn:L1_HEIGHT_SHARDED_MEMORY_CONFIG")
    },
    "memory_config must be a ttnn.MemoryConfig, it is a str": {"memory_config": "L1"},
}
TREES = {
    "intervals must be a ttnn.Tensor, it is a Tensor": {4: torch.zeros(1, 2, 8)},
    "it is a str": {"program_config": "HiFi4"},
    "guess_range.last must be a multiple of 32 from 32 to the 128": {"guess_range": GuessRange(32, 20)},
    "threshold must be from 0 to 1e+06, got -0.1": {"threshold": -0.1},
}


@pytest.mark.parametrize(
    "case, mode, refused",
    [(ONE, "speculate", SPECULATING), (ONE, "exact", EXACT), (TREE, "speculate", TREES)],
    ids=["speculate", "exact", "trees"],
)
def test_refused_before_anything_runs(sim_device, case, mode, refused):
    """Names of options are those of a call, and their numbers are its inputs."""
    calls = {}
    for said, options in refused.items():
        named = {name: value for name, value in options.items() if isinstance(name, str)}
        calls[said] = call = case.call(mode, case.inputs(*case.random()), [5] * case.users, **named)
        call.arguments = tuple(options.get(index, given) for index, given in enumerate(call.arguments))
    check_refused(sim_device(CHIP), calls)
