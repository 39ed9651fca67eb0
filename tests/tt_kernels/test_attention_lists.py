# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Guesses that read listed tiles between the two ends, and the attention weight of each tile that the exact pass hands
out to choose them by."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch
from loguru import logger

from tests.support.host_kernels import run_header
from tests.support.run_op import priorities, run_ops, words
from tests.tt_kernels.attention import (
    CHIP,
    LISTED,
    LISTED_AT,
    LISTED_RANGE,
    LISTS,
    PCC,
    UNTOUCHED,
    Case,
    blank_masses,
    check,
    check_rows,
    list_words,
    wanted,
)
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode.guess_range import (
    MASS_UNIT,
    GuessRange,
    check_guess_range,
    check_tile_lists,
    list_rows,
)
from tt_kernels.speculative_flash_decode.reference import guess_positions, tile_masses_reference


@pytest.mark.sim
@pytest.mark.parametrize("workers", [1, 3])
def test_the_guess_reads_the_listed_tiles_and_nothing_twice(sim_device, workers):
    """And a guess alone reads nothing else: what it does not read is NaN."""
    case = replace(LISTED, workers=workers)
    parts = case.random(21)
    q, *caches = parts
    dirty = [part.clone() for part in caches]
    for user, position in enumerate(LISTED_AT):
        for head in range(case.kv_heads if position >= 0 else 0):
            unread = ~guess_positions(position, 32, guess_range=LISTED_RANGE, listed=LISTS[user][head])
            for part in dirty:
                part[user, head, : position + 1][unread] = math.nan
    options = {"guess_range": LISTED_RANGE, "priority": priorities(2)}
    listed, inputs = words(list_words(), "uint32"), case.inputs(*parts)
    given, none, alone = run_ops(
        sim_device(CHIP),
        [
            case.call("speculate", inputs, LISTED_AT, tile_lists=listed, **options),
            case.call("speculate", inputs, LISTED_AT, tile_lists=words(list_words() * 0, "uint32"), **options),
            case.call("guess", case.inputs(q, *dirty), LISTED_AT, tile_lists=listed, guess_range=LISTED_RANGE),
        ],
    )
    right = wanted(case, *parts, LISTED_AT, guess_range=LISTED_RANGE, listed=LISTS)
    check(case, given, right, LISTED_AT)
    check(case, none, wanted(case, *parts, LISTED_AT, guess_range=LISTED_RANGE), LISTED_AT)
    assert not torch.equal(given["guess"], none["guess"])
    check_rows("guess alone", case.rows(alone["out"]), right.guess, PCC[case.cache], LISTED_AT)


def check_masses(found: torch.Tensor, q, k, at) -> None:
    """Assert each tile's to 1.5 % of the mass of a head; what has no cached tokens stays what it was."""
    expected = tile_masses_reference(q.transpose(1, 2), k.float(), at)
    cached = torch.zeros_like(expected, dtype=torch.bool)
    for user, position in enumerate(at):
        cached[user, :, : -(-(position + 1) // 32)] = True
    assert (found[~cached] == UNTOUCHED).all()
    masses, expected = found.double()[cached] * MASS_UNIT, expected[cached]
    relative = ((masses - expected).abs() / expected.clamp(min=1e-3)).max().item()
    logger.info(f"masses: largest relative error {relative:.2%}")
    assert relative < 0.015


@pytest.mark.sim
@pytest.mark.parametrize(
    ("workers", "changes", "chunk"),
    [
        pytest.param(1, {}, 32, id="1"),
        pytest.param(3, {}, 32, id="3"),
        pytest.param(3, {"head_dim": 128, "cache": "bfloat8_b"}, 32, id="3-128-bfloat8_b"),
        pytest.param(2, {"cache": "bfloat8_b"}, 64, id="2-64-bfloat8_b"),
    ],
)
def test_masses_are_those_of_the_softmax(sim_device, workers, changes, chunk):
    """All users in turn, with listed tiles and without; the results beside them are as good as ever."""
    case = replace(LISTED, workers=workers, **changes)
    q, k, v = case.random(31)
    inputs = case.inputs(q * 3, k, v)  # some tiles hold most of the mass
    inputs[1].read, inputs[2].read = "k", "v"
    options = {"priority": priorities(2), "chunk_size": chunk}
    lists = {"guess_range": LISTED_RANGE, "tile_lists": words(list_words(), "uint32")}
    calls = [
        case.call("speculate", inputs, LISTED_AT, tile_masses=blank_masses(case), **options, **more)
        for more in (lists, {})
    ]
    ends = {"guess_range": GuessRange.both_ends(chunk)}
    for found, given in zip(
        run_ops(sim_device(CHIP), calls), ({"guess_range": LISTED_RANGE, "listed": LISTS}, ends), strict=True
    ):
        check_masses(found["masses"], q * 3, found["k"], LISTED_AT)
        right = wanted(case, q * 3, found["k"].float(), found["v"].float(), LISTED_AT, **given)
        for name in ("exact", "guess"):
            check_rows(name, case.rows(found[name]), getattr(right, name), 0.999, LISTED_AT)
        torch.testing.assert_close(found["norm_sq"].flatten().double(), right.norm_sq, rtol=0.01, atol=0)


def rising(tokens: int, kind: str) -> torch.Tensor:
    """Return scores whose running maximum rises in small steps, from far below 0 to far above it; falls; or leaps,
    beyond what exponents hold, after which all are equal."""
    at = torch.arange(tokens) / tokens
    return {"climbs": 40 * at - 20, "falls": 20 - 40 * at, "leaps": torch.where(at < 0.6, 4 * at, 1e6)}[kind]


@pytest.mark.sim
@pytest.mark.parametrize("workers", [1, 3])
def test_masses_where_maxima_rise(sim_device, workers):
    """What a worker has kept is brought down, often or to nothing: a head and user for each way of rising."""
    case = Case(1, 4, 2, 64, 384, users=2, grid=(4, 1), workers=workers)
    q, k, v = (tensor.float() for tensor in case.random(32))
    k *= 0.1
    q[..., 0] = 64
    for place, kind in zip(((0, 0), (0, 1), (1, 0)), ("climbs", "falls", "leaps"), strict=True):
        k[(*place, slice(None), 0)] = rising(case.max_tokens, kind) / 8
    k[1, 0, :, 1:] = 0
    q, k, v = q.bfloat16(), k.bfloat16(), v.bfloat16()
    at = [case.max_tokens - 1, case.max_tokens - 20]
    call = case.call("speculate", case.inputs(q, k, v), at, tile_masses=blank_masses(case), priority=priorities(2))
    check_masses(run_ops(sim_device(CHIP), [call])[0]["masses"], q, k, at)


def test_a_list_is_kept_in_bounds_and_renumbers_the_cache(tmp_path):
    """Whatever the row holds, each tile of the cache has one number, and the listed ones follow the first."""
    body = """
        struct Plain { uint32_t page(uint32_t row) const { return row; } };
        uint32_t row[16];
        for (auto& word : row) { if (std::scanf("%u", &word) != 1) return 1; }
        const uint32_t kept = tile_list::keep(row, in[0], in[1], in[2], in[3]);
        const tile_list::Renumbered<Plain> order{{}, row + tile_list::first_tile, uint32_t(in[1]), kept};
        std::printf("%u", kept);
        for (uint32_t i = 0; i < in[4]; ++i) { std::printf(" %u", order.page(i)); }
    """
    chance = random.Random(0)
    cases, expected = [], []
    for _ in range(500):
        total = chance.randint(1, 40)
        begin = chance.randint(1, total)
        end, limit = chance.randint(begin, total), chance.randint(1, 14)
        tokens = chance.randint(total * 32 - 31, total * 32)
        listed = [chance.choice((chance.randint(0, total + 2), 2**32 - 1)) for _ in range(14)]
        if chance.random() < 0.7:
            listed.sort()
        told = [chance.choice((tokens, tokens, tokens, tokens + 1)), chance.choice((0, 1, 3, 14, 15, 2**32 - 1))]
        kept: list[int] = []
        for tile in listed[: told[1]] if told[0] == tokens else []:
            if begin <= tile < end and tile > max(kept, default=-1) and len(kept) < limit:
                kept.append(tile)
        cases.append([tokens, begin, end, limit, total, *told, *listed])
        rest = [tile for tile in range(begin, total) if tile not in kept]
        expected.append([len(kept), *range(begin), *kept, *rest])
    assert run_header(tmp_path, "tt_kernels/common/kernels/tile_list.hpp", 5, body, cases) == expected


FACTS = TensorFacts((2, 8, 16), "UINT32", "ROW_MAJOR", True, True)


@pytest.mark.parametrize(
    "found, users, kv_heads, tiles, message",
    [
        (None, 2, 8, 3, "belong together"),
        (FACTS, 2, 8, 0, "belong together"),
        (FACTS, 2, 4, 3, r"\(2, 4, 16\)"),
        (replace(FACTS, dtype="INT32"), 2, 8, 3, "INT32"),
        (replace(FACTS, shape=(4, 32, 16)), 4, 32, 3, "at most 64 .* 4 x 32"),
    ],
)
def test_refused_lists(found, users, kv_heads, tiles, message):
    with pytest.raises(UnsupportedError, match=message):
        check_tile_lists(found, users, kv_heads, tiles)


def test_refused_numbers_of_tiles():
    for tiles in (-1, 15, True):
        with pytest.raises(UnsupportedError, match=f"from 0 to 14, got {tiles}"):
            check_guess_range(GuessRange(32, 32, tiles=tiles), 1024)
    with pytest.raises(ValueError, match="user 0, head 1: 15 tiles"):
        list_rows([640], [[[], list(range(1, 16))]])
