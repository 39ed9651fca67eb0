# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What speculative flash decode checks before it starts, its layout and L1 budget, and its bench's report."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import pytest
from loguru import logger

from tt_kernels.common.key_chunks import MAX_CHUNKS
from tt_kernels.common.priority import MAX_USERS
from tt_kernels.common.speculative_chips import check_gathered
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode.checks import (
    Problem,
    check_fidelity,
    check_numbers,
    check_problem,
)
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.work_split import (
    EXCHANGE,
    OUTPUT,
    WORKER,
    choose_work_split,
    l1_bytes,
    make_buffers,
)

GRID = [(x, y) for y in range(8) for x in range(8)]
# What the runtime leaves on an N150 is asked of it at run time; this is what it leaves on the chips of the tests,
# whose kernels may take KERNEL_BYTES.
N150_L1 = 1_201_824
LLAMA = Problem(1, 32, 8, 128, 131072, "BFLOAT8_B", 256)


def layout(problem, l1_free=N150_L1, cores=GRID, speculate=True, exchange=(7, 7), **options):
    return choose_work_split(
        problem,
        tuple(cores),
        l1_free,
        speculate=speculate,
        peer=exchange is not None,
        exchange=exchange,
        **options,
    )


def test_llamas_heads_take_the_whole_grid():
    found = layout(LLAMA)
    assert len(found.assignment.groups) == 8 and found.assignment.workers_per_group == 7
    assert len(set(found.assignment.cores)) == 58
    busy = layout(replace(LLAMA, users=8)).assignment
    assert len(busy.groups) * busy.workers_per_group >= 56


@pytest.mark.parametrize("speculate", [True, False])
@pytest.mark.parametrize("cache_dtype", ["BFLOAT8_B", "BFLOAT16"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("kv_heads", [1, 2, 8])
def test_defaults_serve_every_shape(kv_heads, head_dim, cache_dtype, speculate):
    """Also one head of 128 that 62 workers can share, each with slots for 6 partial results."""
    for users, max_tokens, chunk_size in product((1, 8), (1024, 131072), (32, 1024)):
        problem = Problem(users, 4 * kv_heads, kv_heads, head_dim, max_tokens, cache_dtype, chunk_size)
        found = layout(problem, speculate=speculate, exchange=(7, 7) if speculate else None)
        assert max(l1_bytes(found.buffers).values()) <= N150_L1
        chunks = problem.max_tokens / 32 / found.assignment.workers_per_group / found.key_tiles
        assert found.key_tiles <= problem.chunk_size // 32 or chunks > MAX_CHUNKS / 2
        if max_tokens == 131072:
            groups = len(found.assignment.groups)
            assert groups == min(problem.items, 62) or groups * found.assignment.workers_per_group >= 40


def test_as_many_keys_at_once_as_fit_and_said_once():
    problem = Problem(1, 8, 2, 128, 131072, "BFLOAT16", 512)
    assert layout(problem, l1_free=10**7).key_tiles == 16
    messages = []
    handle = logger.add(lambda message: messages.append(message.record["message"]), level="INFO")
    try:
        found = [layout(problem, l1_free=700_000, workers_per_head=7) for _ in range(3)]
    finally:
        logger.remove(handle)
    key_tiles = found[0].key_tiles
    assert 1 < key_tiles < 16
    more = make_buffers(problem, 7, key_tiles + 1, speculate=True, peer=True)
    assert max(l1_bytes(found[0].buffers).values()) <= 700_000 < max(l1_bytes(more).values())
    assert len(messages) == 1
    assert f"process {32 * key_tiles} keys at once: the 512 of a chunk do not fit the 700000" in messages[0]
    assert layout(problem, key_chunk=96).key_tiles == 3


def test_layouts_that_cannot_be_are_refused():
    two = [(0, 0), (1, 0)]
    assert layout(LLAMA, cores=two[:1], speculate=False, exchange=None).assignment.workers == [(0, 0)]
    assert layout(LLAMA, cores=two, exchange=None).assignment.output == (1, 0)
    with pytest.raises(
        UnsupportedError, match=r"1 worker\(s\) per head and 1 output core\(s\) need 2 cores, .* 1 for them"
    ):
        layout(LLAMA, cores=two, exchange=(1, 0))
    with pytest.raises(UnsupportedError, match=r"need 6 cores, the grid has 4"):
        layout(LLAMA, cores=GRID[:4], workers_per_head=5)
    for workers in (0, -1, 2.0, 2.5, True, "2"):
        with pytest.raises(UnsupportedError, match=f"workers_per_head must .* at least 1, got {workers!r}"):
            layout(LLAMA, workers_per_head=workers)
    for key_chunk in (0, 16, 100, 262144, -32, 64.0, True):
        with pytest.raises(UnsupportedError, match=f"from 32 to the 131072 tokens of the caches, got {key_chunk!r}"):
            layout(LLAMA, key_chunk=key_chunk)


def test_buffers_other_cores_write_to_lie_at_the_same_address():
    buffers = make_buffers(replace(LLAMA, users=4), 7, 8, speculate=True, peer=True)
    assert buffers["cb_guess"].roles == buffers["cb_exact"].roles == {WORKER, OUTPUT}
    assert buffers["cb_outgoing"].roles == {WORKER, EXCHANGE}
    assert buffers["cb_exact"].pages == 4 * 4
    assert len({buffer.index for buffer in buffers.values()}) == len(buffers)
    assert "cb_gathered" not in make_buffers(LLAMA, 1, 8, speculate=True, peer=False)
    assert "cb_norms" not in make_buffers(LLAMA, 7, 8, speculate=False, peer=False)


@pytest.mark.parametrize("users", [1, 8])
@pytest.mark.parametrize("chunk_size", [128, 256, 512])
@pytest.mark.parametrize("kv_heads", [8, 4, 2])
def test_llama_fits_l1_at_every_chunk_size(kv_heads, chunk_size, users):
    """With bfloat8_b caches whole chunks of keys at once, on the whole grid, and so many that a worker goes through
    the 128K tokens in 64 chunks."""
    problem = replace(LLAMA, users=users, kv_heads=kv_heads, query_heads=4 * kv_heads, chunk_size=chunk_size)
    found = layout(problem)
    assert found.key_tiles % (chunk_size // 32) == 0
    assert 4096 <= found.key_tiles * found.assignment.workers_per_group * MAX_CHUNKS
    assert layout(replace(problem, max_tokens=8192)).key_tiles == chunk_size // 32


def test_too_little_l1_is_refused_with_the_bytes():
    problem = replace(LLAMA, chunk_size=2048, cache_dtype="BFLOAT16")
    buffers = make_buffers(problem, 7, 64, speculate=True, peer=True)
    needed = l1_bytes(buffers)[WORKER]
    with pytest.raises(
        UnsupportedError, match=rf"key_chunk 2048 .* 7 worker.* needs {needed} bytes .* {N150_L1} are free"
    ):
        layout(problem, workers_per_head=7, key_chunk=2048)
    assert layout(problem, needed, workers_per_head=7, key_chunk=2048).buffers == buffers
    with pytest.raises(UnsupportedError, match=r"key_chunk 32 .* 1 worker.* of which 60000 are free"):
        layout(problem, 60_000)


# --- what is refused ---

Q = TensorFacts((1, 2, 32, 128), "BFLOAT16")
CACHE = TensorFacts((2, 8, 1024, 128), "BFLOAT8_B")
POSITIONS = TensorFacts((2,), "INT32", "ROW_MAJOR")


def test_llamas_shapes_are_supported():
    assert check_problem(Q, CACHE, CACHE, POSITIONS, 256) == Problem(2, 32, 8, 128, 1024, "BFLOAT8_B", 256)


@pytest.mark.parametrize(
    "q, k, v, positions, chunk, message",
    [
        (replace(Q, dtype="BFLOAT8_B"), CACHE, CACHE, POSITIONS, 128, "q must be BFLOAT16, it is BFLOAT8_B"),
        (replace(Q, layout="ROW_MAJOR"), CACHE, CACHE, POSITIONS, 128, "q must have layout TILE, .*ROW_M"),
        (replace(Q, on_device=False), CACHE, CACHE, POSITIONS, 128, "q must be on device"),
        (Q, replace(CACHE, interleaved=False), CACHE, POSITIONS, 128, "k must be interleaved, it is sharded"),
        (replace(Q, shape=(2, 32, 128)), CACHE, CACHE, POSITIONS, 128, r"4 dimensions, .*\(2, 32, 128\)"),
        (replace(Q, shape=(2, 2, 32, 128)), CACHE, CACHE, POSITIONS, 128, r"one token per user, .*\(2, 2, 32"),
        (Q, CACHE, replace(CACHE, dtype="BFLOAT16"), POSITIONS, 128, "k is BFLOAT8_B .* v is BFLOAT16"),
        (Q, *2 * [replace(CACHE, dtype="BFLOAT4_B")], POSITIONS, 128, "BFLOAT8_B, they are BFLOAT4_B"),
        (Q, *2 * [replace(CACHE, shape=(4, 8, 1024, 128))], POSITIONS, 128, "q has 2 users .* have 4"),
        (Q, *2 * [replace(CACHE, shape=(2, 8, 1024, 64))], POSITIONS, 128, "head_dim 128, .* have 64"),
        (Q, *2 * [replace(CACHE, shape=(2, 5, 1024, 128))], POSITIONS, 128, "32 query heads .* by 5 key"),
        (Q, *2 * [replace(CACHE, shape=(2, 8, 1000, 128))], POSITIONS, 128, "multiple of 32 .* hold 1000"),
        (replace(Q, shape=(1, 2, 64, 128)), CACHE, CACHE, POSITIONS, 128, "1 to 32 query heads .* q has 64"),
        (
            replace(Q, shape=(1, 2, 32, 96)),
            *2 * [replace(CACHE, shape=(2, 8, 1024, 96))],
            POSITIONS,
            128,
            r"one of \(64, 128\), it is 96",
        ),
        (
            replace(Q, shape=(1, 9, 32, 128)),
            *2 * [replace(CACHE, shape=(9, 8, 1024, 128))],
            POSITIONS,
            128,
            "1 to 8 users are supported, q has 9",
        ),
        (Q, CACHE, CACHE, POSITIONS, 100, "multiple of 32, got 100"),
        (Q, CACHE, CACHE, POSITIONS, 0, "multiple of 32, got 0"),
        (Q, CACHE, CACHE, POSITIONS, 2048, "chunk_size 2048 exceeds the 1024 tokens"),
        (Q, CACHE, CACHE, replace(POSITIONS, shape=(3,)), 128, r"INT32 ROW_MAJOR \(2,\), it is .* \(3,\)"),
        (Q, CACHE, CACHE, replace(POSITIONS, dtype="UINT32"), 128, "it is UINT32"),
        (Q, CACHE, CACHE, replace(POSITIONS, layout="TILE"), 128, "it is INT32 TILE"),
    ],
)
def test_unsupported_inputs_are_refused_with_their_values(q, k, v, positions, chunk, message):
    with pytest.raises(UnsupportedError, match=message):
        check_problem(q, k, v, positions, chunk)


def test_guess_ranges_are_checked():
    for wrong, message in (
        ("both ends", "guess_range must be a GuessRange, it is a str"),
        (GuessRange(48, 64), "guess_range.first must be a multiple of 32 from 32 to the 1024 .* got 48"),
        (GuessRange(64, 0), "guess_range.last must be .* got 0"),
        (GuessRange(64, 2048), "guess_range.last must be .* got 2048"),
        (GuessRange(64, 64, 1), "guess_range.whole_tail must be True or False, got 1"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            check_problem(Q, CACHE, CACHE, POSITIONS, 256, wrong)
    assert check_problem(Q, CACHE, CACHE, POSITIONS, 256, GuessRange(32, 96)).guess == GuessRange(32, 96)


def test_numbers_and_names_are_checked():
    assert check_numbers(0.1, None, 64) == (0.1, 0.125)
    for threshold in (-0.1, float("nan"), float("inf"), 1e20, "0.1"):
        with pytest.raises(UnsupportedError, match=re.escape(f"got {threshold!r}")):
            check_numbers(threshold, None, 64)
    for scale in (0, 1e-5, -0.125, 101, 1e20, float("nan"), "1"):
        with pytest.raises(UnsupportedError, match=f"scale must be from 0.0001 to 100, got {re.escape(repr(scale))}"):
            check_numbers(0.1, scale, 64)
    for fidelity in ("LoFi", "HiFi5"):
        with pytest.raises(UnsupportedError, match=f"one of HiFi2, HiFi3, got '{fidelity}'"):
            check_fidelity(fidelity)
    with pytest.raises(UnsupportedError, match="HiFi4 gives single wrong outputs on Wormhole .* issue 38306"):
        check_fidelity("HiFi4")
    check_gathered(TensorFacts((1, 1, 2, MAX_USERS), "UINT32", "ROW_MAJOR"))
    with pytest.raises(UnsupportedError, match=r"\(1, 1, 2, 32\), .* it is UINT32 ROW_MAJOR \(1, 1, 1, 32\)"):
        check_gathered(TensorFacts((1, 1, 1, MAX_USERS), "UINT32", "ROW_MAJOR"))
