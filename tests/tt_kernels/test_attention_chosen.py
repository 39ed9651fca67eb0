# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Guesses that read chosen tiles between the two ends, and the attention weight of each tile that the exact pass hands
out to choose them by."""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loguru import logger

from tests.support.host_kernels import run_header
from tests.support.run_op import priorities, run_ops, words
from tests.tt_kernels.attention import (
    BOTH,
    CHIP,
    CHOOSING,
    CHOOSING_AT,
    CHOSEN,
    PCC,
    UNTOUCHED,
    Case,
    blank_masses,
    check,
    check_rows,
    chosen_tiles,
    unread_is_nan,
    wanted,
)
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode.guess_range import (
    MASS_UNIT,
    GuessRange,
    check_tile_words,
    chosen_rows,
    chosen_words,
)
from tt_kernels.speculative_flash_decode.reference import tile_masses_reference

# Of an exact result over other chosen tiles: the order of its sums alone differs, and with it the roundings of bfloat16
# weights, of a state's 9 bits and of the result. Largest difference over the largest element.
OTHER_ORDER = 0.01


def bits_of(rows: torch.Tensor) -> list[list[list[int]]]:
    """Return the tiles by user and head whose bits are set."""
    return [
        [[32 * at + bit for at, word in enumerate(head) for bit in range(32) if word >> bit & 1] for head in user]
        for user in rows.tolist()
    ]


TILES = 40  # of the cache below, in words of 32 bits: one and a quarter
BITS = st.one_of(
    st.just(0),
    st.just(2**256 - 1),
    st.integers(0, TILES + 20).map(lambda tile: 1 << tile),
    st.integers(0, 2**256 - 1),
    st.integers(0, 2**256 - 1).map(lambda bits: bits & bits >> 3 & bits >> 7),
)
POSITIONS = st.one_of(
    st.integers(-1, 32 * TILES - 1), st.sampled_from([32 * t + d for t in (2, 3, 20) for d in (-1, 0)])
)


@pytest.mark.sim
@settings(max_examples=2)
@given(data=st.data())
@pytest.mark.parametrize(("nodes", "workers"), [(1, 1), (1, 5), (6, 5)])
def test_any_bits_at_any_positions(sim_device, nodes, workers, data):
    """None, one, all, few and any; the ends and what is past the cache among them. Guess and exact result against
    torch, and the exact result against those of the ends, of exact attention alone, and of all tiles."""
    grid = (4, 2) if workers > 2 else (3, 1)
    case = Case(nodes, 4, 2, 64, 32 * TILES, users=2, grid=grid, workers=workers, key_chunk=128)
    positions = POSITIONS.map(lambda position: min(position, case.max_tokens - nodes))
    at = data.draw(st.lists(positions, min_size=2, max_size=2), "positions")
    drawn = [data.draw(BITS, "bits") for _ in range(4)]
    rows = torch.tensor([[bits >> 32 * word & 0xFFFFFFFF for word in range(8)] for bits in drawn]).view(2, 2, 8)
    tiles = bits_of(rows)
    q, k, v = case.random(data.draw(st.integers(0, 99), "seed"))
    inputs, chosen, options = case.inputs(q, k, v), words(rows, "uint32"), {"guess_range": BOTH, "threshold": 0.5}
    calls = [
        case.call("speculate", inputs, at, chosen=chosen, priority=priorities(2), **options),
        case.call("speculate", inputs, at, priority=priorities(2), **options),
        case.call("speculate", inputs, at, chosen=words(rows * 0 + 0xFFFFFFFF, "uint32"), **options),
        case.call("exact", inputs, at),
    ]
    if not case.trees:
        dirty = [unread_is_nan(part, at, BOTH, tiles) for part in (k, v)]
        calls.append(case.call("guess", case.inputs(q, *dirty), at, chosen=chosen, guess_range=BOTH))
    some, ends, everything, exact, *alone = run_ops(sim_device(CHIP), calls)
    right = wanted(case, q, k, v, at, threshold=0.5, chosen=tiles)
    check(case, some, right, at, 0.5)
    check(case, ends, wanted(case, q, k, v, at, threshold=0.5), at, 0.5)
    for found in alone:
        check_rows("guess alone", case.rows(found["out"]), right.guess, PCC[case.cache], at)
    assert torch.equal(everything["guess"], everything["exact"]), "nothing is left"
    for other in (ends["exact"], everything["exact"], exact["out"]):
        apart = (some["exact"] - other).abs().max().item() / max(other.abs().max().item(), 1e-9)
        logger.info(f"exact results apart by {apart:.2e}")
        assert apart < OTHER_ORDER


def check_masses(case: Case, found: torch.Tensor, q, k, at, passes: int = 1) -> None:
    """Assert each tile's moving average after some equal passes, to 1.5 % of it, and from words of UNTOUCHED on, which
    those of tiles without cached tokens still have. The query of a tree is its root's."""
    past, roots = 0.5**passes, q[:, :, :: case.nodes].transpose(1, 2)
    expected = (1 - past) * tile_masses_reference(roots, k.float(), at) + past * UNTOUCHED * MASS_UNIT
    cached = torch.zeros_like(expected, dtype=torch.bool)
    for user, position in enumerate(at):
        cached[user, :, : -(-(position + 1) // 32)] = True
    assert (found[~cached] == UNTOUCHED).all()
    masses, expected = found.double()[cached] * MASS_UNIT, expected[cached]
    relative = ((masses - expected).abs() / expected.clamp(min=1e-3)).max().item()
    logger.info(f"masses: largest relative error {relative:.2%}")
    assert relative < 0.015


# Nodes, workers, what else differs from CHOOSING, and the chunk.
MASSES = {
    "3-128-bfloat8_b": (1, 3, {"head_dim": 128, "cache": "bfloat8_b"}, 32),
    "2-64-bfloat8_b": (1, 2, {"cache": "bfloat8_b"}, 64),
    "a tree of its root": (1, 1, {"tree": True}, 32),
    "3 nodes, a worker": (3, 1, {"cache": "bfloat8_b", "key_chunk": 64}, 32),
    "16 nodes, 3 workers": (16, 3, {"head_dim": 128, "cache": "bfloat8_b", "key_chunk": 32, "users": 3}, 32),
    "33 nodes, a worker": (33, 1, {"key_chunk": 32, "users": 2, "query_tiles": 5}, 64),
    "33 nodes, 2 workers": (33, 2, {"head_dim": 128, "key_chunk": 64, "users": 2, "query_tiles": 5}, 64),
}


@pytest.mark.sim
@pytest.mark.parametrize(("nodes", "workers", "changes", "chunk"), MASSES.values(), ids=MASSES)
def test_masses_are_those_of_the_softmax(sim_device, nodes, workers, changes, chunk):
    """Users in turn, with chosen tiles and without; results have the bits that they have without masses."""
    case = replace(CHOOSING, nodes=nodes, workers=workers, **changes)
    tiles = CHOSEN[: case.users]
    at = [min(position, case.max_tokens - nodes) for position in CHOOSING_AT[: case.users]]
    q, k, v = case.random(31)
    inputs = case.inputs(q * 3, k, v)  # some tiles hold most of the mass
    inputs[1].read, inputs[2].read = "k", "v"
    options = {"priority": priorities(2), "chunk_size": chunk}
    masses, chosen = blank_masses(case), {"chosen": chosen_tiles(case, tiles)}
    calls = [case.call("speculate", inputs, at, tile_masses=masses, **options, **more) for more in (chosen, {})]
    calls.append(case.call("speculate", inputs, at, **options, **chosen))
    ends = {"guess_range": GuessRange.both_ends(chunk)}
    *results, without = run_ops(sim_device(CHIP), calls)
    for passes, (found, more) in enumerate(zip(results, ({"chosen": tiles}, {}), strict=True), 1):
        check_masses(case, found["masses"], q * 3, found["k"], at, passes)
        right = wanted(case, q * 3, found["k"].float(), found["v"].float(), at, **ends, **more)
        for name in ("exact", "guess"):
            check_rows(name, case.rows(found[name]), getattr(right, name), 0.999, at)
        torch.testing.assert_close(found["norm_sq"].flatten().double(), right.norm_sq, rtol=0.01, atol=0)
    for name in ("exact", "guess", "distance_sq", "norm_sq", "priority"):
        assert torch.equal(results[0][name], without[name]), name


def rising(tokens: int, kind: str) -> torch.Tensor:
    """Return scores whose running maximum rises in small steps, from far below 0 to far above it; falls; or leaps,
    beyond what exponents hold, after which all are equal."""
    at = torch.arange(tokens) / tokens
    return {"climbs": 40 * at - 20, "falls": 20 - 40 * at, "leaps": torch.where(at < 0.6, 4 * at, 1e6)}[kind]


@pytest.mark.sim
@pytest.mark.parametrize(("nodes", "workers"), [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_masses_where_maxima_rise(sim_device, nodes, workers):
    """What a worker has kept is brought down, often or to nothing; what it begins anew is below or above what it had: a
    head and user for each way of rising."""
    case = Case(nodes, 4, 2, 64, 384, users=2, grid=(4, 1), workers=workers, key_chunk=32)
    q, k, v = (tensor.float() for tensor in case.random(32))
    k *= 0.1
    q[..., 0] = 64
    for place, kind in zip(((0, 0), (0, 1), (1, 0)), ("climbs", "falls", "leaps"), strict=True):
        k[(*place, slice(None), 0)] = rising(case.max_tokens, kind) / 8
    k[1, 0, :, 1:] = 0
    q, k, v = q.bfloat16(), k.bfloat16(), v.bfloat16()
    at = [case.max_tokens - nodes, case.max_tokens - 20]
    inputs = case.inputs(q, k, v)
    calls = [
        case.call("speculate", inputs, at, tile_masses=blank_masses(case), priority=priorities(2), **more)
        for more in ({}, {"chosen": chosen_tiles(case, [[[5, 8], [2, 3, 10]], [[2, 9], []]])})
    ]
    for found in run_ops(sim_device(CHIP), calls):
        check_masses(case, found["masses"], q, k, at)


def test_chosen_tiles_number_the_rows_of_the_cache(tmp_path):
    """First tiles, chosen ones, the others, the tail, whatever the words hold; forwards, and in any order."""
    body = """
        const uint32_t count = chosen_tiles::words_of(in[2]);
        static uint32_t words[64];
        for (uint32_t i = 0; i < count; ++i) { if (std::scanf("%u", words + i) != 1) return 1; words[count + i] = 1; }
        const uint32_t kept = chosen_tiles::keep(words, count, in[0], in[1]);
        chosen_tiles::Order order(words, count, in[0], in[1], kept);
        std::printf("%u", kept);
        for (uint32_t i = 0; i < in[2]; ++i) { std::printf(" %u", order.tile(i)); }
        for (uint32_t i = 0; i < in[2]; ++i) { std::printf(" %u", order.tile(i * in[3] % in[2])); }
    """
    chance = random.Random(0)
    cases, expected = [], []
    for number in range(1000):
        total = chance.randint(1, 700)
        begin = chance.randint(1, total)
        end = chance.randint(begin, total)
        count, step = chosen_words(32 * total), chance.randint(0, total)
        kinds = (0, 2**32 - 1, chance.getrandbits(32), chance.getrandbits(32) & chance.getrandbits(32))
        bits = [kinds[(number + chance.randint(0, 1)) % 4] for _ in range(count)]
        kept = [tile for tile in range(begin, end) if bits[tile // 32] >> tile % 32 & 1]
        rows = [*range(begin), *kept, *sorted({*range(begin, end)} - {*kept}), *range(end, total)]
        cases.append([begin, end, total, step, *bits])
        expected.append([len(kept), *rows, *(rows[i * step % total] for i in range(total))])
    assert run_header(tmp_path, "tt_kernels/common/kernels/chosen_tiles.hpp", 4, body, cases) == expected


def test_words_are_whole_lines():
    assert [chosen_words(tokens) for tokens in (32, 8192, 8224, 65536, 131072)] == [8, 8, 16, 64, 128]
    found = chosen_rows([[[0, 31, 33], [255]]], 8192)
    assert found.tolist() == [[[2**31 + 1, 2, *6 * [0]], [*7 * [0], 2**31]]]
    with pytest.raises(ValueError, match="user 0, head 1: tile 256 is outside a cache of 8192 tokens"):
        chosen_rows([[[], [256]]], 8192)


FACTS = TensorFacts((2, 8, 8), "UINT32", "ROW_MAJOR", True, True)


@pytest.mark.parametrize(
    ("found", "tokens"),
    [(FACTS, 8224), (replace(FACTS, shape=(2, 8, 9)), 8192), (replace(FACTS, dtype="INT32"), 8192)],
)
def test_refused_bitmaps(found, tokens):
    check_tile_words(FACTS, None, 2, 8, 8192)
    with pytest.raises(UnsupportedError, match=r"chosen must be UINT32 ROW_MAJOR \(2, 8, (8|16)\), .* it is U?INT32"):
        check_tile_words(found, None, 2, 8, tokens)
