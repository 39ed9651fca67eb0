# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens chosen on simulated chips from given logits, against the reference's distribution and draws; and sampling
parameters at the ends of their ranges."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams, inverse_cdf, warp_logits
from models.llama31_8b.tt.mesh import MeshShape, Site
from runtime_patches.simulated_n150.testing.tensors import on_chips
from tests.support.tt_programs import BAND, TINY, margin, of_chips, put, read
from tt_kernels.speculative_sampling.checks import check_temperature, nearest_temperature


def site(mesh, vocab: int) -> Site:
    return Site(mesh, MeshShape(*mesh.shape), replace(TINY, vocab_size=vocab))


def make_chooser(mesh, params, vocab: int, **options):
    from models.llama31_8b.tt.sampling.top_k import Sampler

    return Sampler(site(mesh, vocab), params, **options)


def choose(mesh, logits, cases: list, block_tiles: int) -> dict:
    """bfloat16 logits [rows, vocab], followed by the LM head's padding, in blocks of `block_tiles` tiles; cases:
    pairs of parameters and uniform numbers, float64 [rows].

    Returns the arg-max of each row; the candidates' values and keys; for each
    case the distribution its tokens are drawn from, as of `Sampler.borders`, and the tokens [rows].
    """
    vocab = logits.shape[1]
    greedy = make_chooser(mesh, SamplingParams(), vocab, block_tiles=block_tiles)
    # What the head makes of the padding must not be chosen, even where it is larger than all logits.
    padded = F.pad(logits, (0, sum(greedy.blocks) - vocab), value=float(logits.max()) + 1)
    given = put(mesh, padded[None, None])
    values, keys = greedy.candidates(given)
    draws = []
    for params, numbers in cases:
        sampler = make_chooser(mesh, params, vocab, block_tiles=block_tiles)
        borders = sampler.borders(values, keys)
        picked = read(sampler.pick(*borders, sampler.uniforms(numbers.tolist())))[0].long()
        draws.append({"borders": [read(part)[0, 0] for part in borders], "tokens": picked})
    return {
        "argmax": read(greedy(given))[0].long(),
        "values": read(values)[0, 0],
        "keys": read(keys)[0, 0],
        "draws": draws,
    }


def pick_among(mesh, ids, numbers) -> list[int]:
    """Tokens drawn by uniform `numbers` [rows] from equally probable, ascending `ids` [rows, 32] of Llama 3.1's."""
    from models.llama31_8b.tt.sampling.top_k import ORIGIN

    sampler = make_chooser(mesh, SamplingParams(1.0, top_k=32), 128256)
    up_to = torch.arange(1.0, 33.0).repeat(len(ids), 1)
    parts = [sampler._put(part, "float32") for part in ((ORIGIN - ids).float(), up_to, torch.full_like(up_to, 32.0))]
    return read(sampler.pick(*parts, sampler.uniforms(numbers)))[0].tolist()


def choose_per_user(mesh, logits, batches: list) -> list:
    """bfloat16 logits [users, vocab]; batches: for each call a pair of parameters and a number per user. Returns each
    call's tokens, int64 [users]; all calls replay one trace where the mesh has them."""
    from models.llama31_8b.tt.sampling.top_k import PerUserSampler
    from models.llama31_8b.tt.trace import TracedStep, why_no_trace

    users, vocab = logits.shape
    sampler = PerUserSampler(site(mesh, vocab), users)
    given = put(mesh, F.pad(logits, (0, -vocab % 32))[None, None])
    step = TracedStep(mesh, lambda: sampler(given, sampler.numbers), why_no_trace(mesh) is not None)
    found = []
    for draws in batches:
        sampler.load(draws)
        found.append(read(step())[0].long())
    try:
        sampler.load([(replace(batches[0][0][0], temperature=1.0, top_k=33), 0.0)] * users)
    except ValueError as error:
        found.append(str(error))
    return found


def likeliest(mesh, logits) -> list:
    """bfloat16 logits [rows, vocab], split over the chips of a row -> the token that each chip chooses for each row."""
    import ttnn

    rows, vocab = logits.shape
    sampler = make_chooser(mesh, SamplingParams(), vocab)
    width = sum(sampler.blocks) * mesh.shape[1]
    padded = F.pad(logits, (0, width - vocab), value=float(logits.max()) + 1)
    given = on_chips(mesh, padded[None, None], ttnn.bfloat16, ttnn.TILE_LAYOUT, sampler.mesh_shape.mapper(mesh, -1))
    output = ttnn.empty([1, rows], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, mesh, ttnn.DRAM_MEMORY_CONFIG)
    sampler(given, None, output)
    return [chip[0].tolist() for chip in of_chips(output)]


def draw_on_a_row(mesh, logits, params, numbers) -> list:
    """The vocabulary split over a TP group: the tokens drawn by `numbers`, float64 [rows], by each chip, [rows]."""
    import ttnn

    from models.llama31_8b.tt.sampling.top_k import LOWEST, FullVocabSampler

    shape = MeshShape(*mesh.shape)
    # Followed by the head's padding as Sampler masks it.
    columns = shape.padded_vocab(replace(TINY, vocab_size=logits.shape[1]))
    padded = F.pad(logits, (0, columns - logits.shape[1]), value=LOWEST)
    given = on_chips(mesh, padded[None, None], ttnn.bfloat16, ttnn.TILE_LAYOUT, shape.mapper(mesh, -1))
    sampler = FullVocabSampler(site(mesh, logits.shape[1]), params)
    return [chip[0].long() for chip in of_chips(sampler(given, sampler.uniforms(numbers.tolist())))]


ROWS, VOCAB = 32, 150
ORIGIN = 2**24
CASES = [
    SamplingParams(2.0, top_k=6),
    SamplingParams(3.0, top_k=32, top_p=0.9),
    SamplingParams(5.0, top_k=1),
    SamplingParams(0.7, top_k=20, top_p=1e-45),
]


@pytest.mark.sim
def test_choices_are_the_references(sim_device):
    """Candidates exact, ties included; distributions to 2.5e-4; tokens by the same numbers. Two blocks of the
    vocabulary are merged, the first widened to a power of two."""
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(ROWS, VOCAB, generator=generator) * 3).bfloat16()
    cases = [(params, torch.rand(ROWS, generator=generator, dtype=torch.float64)) for params in CASES]
    told = sim_device("2x1").run(choose, logits, cases, 3, timeout=1500)

    ordered, order = torch.sort(logits, dim=-1, descending=True, stable=True)
    assert (ordered[:, 1:32] == ordered[:, :31]).any(), "no ties among the candidates"
    assert torch.equal(told["argmax"], order[:, 0])
    assert torch.equal(told["values"], ordered[:, :32]) and torch.equal(ORIGIN - told["keys"].long(), order[:, :32])
    for (params, numbers), drawn in zip(cases, told["draws"], strict=True):
        masses = warp_logits(logits, params)
        keys, up_to, total = (part.double() for part in drawn["borders"])
        ids, some = (ORIGIN - keys).long().clamp(max=VOCAB - 1), keys > 0
        assert torch.equal(torch.zeros_like(masses).scatter(1, ids, some.float()), (masses > 0).float())
        wrong = (up_to / total - masses.double().cumsum(-1).gather(1, ids))[some].abs().max()
        logger.info("{}: borders are off by up to {:.1e}", params, wrong)
        assert wrong < BAND
        clear = margin(masses, numbers) >= BAND
        assert clear.float().mean() > 0.9
        assert torch.equal(drawn["tokens"][clear], inverse_cdf(masses, numbers)[clear])
        if params.top_k == 1 or params.top_p < 1e-3:
            assert torch.equal(drawn["tokens"], order[:, 0])


@pytest.mark.slow
@pytest.mark.sim
def test_two_chips_choose_the_likeliest_token_of_all(sim_mesh):
    """The lowest id wins among equal logits, within a chip and between chips; also for negative ones, and never
    padding."""
    generator = torch.Generator().manual_seed(4)
    logits = (torch.randn(32, VOCAB, generator=generator) * 3).bfloat16()
    logits[0, [20, 40]] = logits[1, [70, 90]] = logits[2, [130, 149]] = 20.0
    logits[3] = -abs(logits[3]) - 1
    logits[4] = 1.5
    told = sim_mesh((1, 2), "4x2").run(likeliest, logits, timeout=1500)
    assert told == [[20, 70, 130, *logits[3:].argmax(-1).tolist()]] * 2
    assert told[0][4] == 0


@pytest.mark.sim
def test_ids_of_a_large_vocabulary_are_exact(sim_device):
    generator = torch.Generator().manual_seed(1)
    ids = torch.stack([torch.randperm(128256, generator=generator)[:32] for _ in range(8)]).sort(-1).values
    ids[0, -1] = 128255
    numbers = [(place + 0.5) / 32 for place in (31, 0, 1, 30, 17, 8, 13, 22)]
    found = sim_device("2x1").run(pick_among, ids, numbers)
    assert found == [int(row[int(number * 32)]) for row, number in zip(ids, numbers, strict=True)]


# As FullVocabSampler says: a number that near to a border between two tokens may choose the other one.
BORDER = 2.0**-19


@pytest.mark.sim
def test_draws_of_two_chips_are_the_references(sim_mesh):
    """By temperature alone, from 64 columns of a chip, 56 of the other, padding: numbers beside borders, 0, nearly 1.

    Rows: any, flat, peaked, all mass on the second chip, zeros of both signs.
    """
    generator = torch.Generator().manual_seed(3)
    logits = (torch.randn(12, 120, generator=generator) * 3).bfloat16()
    logits[1], logits[2, 50], logits[3, :100] = 1.5, 40, -300
    logits[4, 10:60:2], logits[4, 11:120:3] = 0.0, -0.0
    params = SamplingParams(1.3)
    masses = warp_logits(logits, params).double()
    borders = (masses / masses.sum(1, keepdim=True)).cumsum(1)
    ids = torch.randint(5, 115, (12, 1), generator=generator)
    numbers = borders.gather(1, ids)[:, 0] + torch.where(torch.arange(12) % 2 == 0, 1.0, -1.0) * 1.5 * BORDER
    numbers = numbers.clamp(0, 1 - 2**-20)
    numbers[3], numbers[5], numbers[6], numbers[7] = 0.5, 0.0, 1 - 2**-20, 1 - 2**-22
    drawn, other = sim_mesh((1, 2), "2x1").run(draw_on_a_row, logits, params, numbers)
    assert torch.equal(drawn, other)
    clear = margin(masses, numbers) >= BORDER
    assert clear.sum() >= 7 and clear[3]
    expected = inverse_cdf(masses, numbers)
    logger.info("{} of {} numbers are clear of borders; {}", int(clear.sum()), len(clear), drawn)
    assert torch.equal(drawn[clear], expected[clear])
    assert (masses.gather(1, drawn[:, None]) > 0).all()


USERS, CALLS = 8, 2
KINDS = [
    SamplingParams(),
    SamplingParams(2.0, top_k=6),
    SamplingParams(3.0, top_k=32, top_p=0.9),
    SamplingParams(0.7, top_k=20, top_p=0.5),
    SamplingParams(5.0, top_k=1),
    SamplingParams(1e-45, top_k=4),
    SamplingParams(2.0, top_k=32, top_p=1e-45),
]


@pytest.mark.sim
def test_each_user_is_drawn_by_its_own_parameters(sim_device):
    """Parameters change between calls; equal logits among the candidates of every user."""
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(USERS, VOCAB, generator=generator) * 3).bfloat16()
    batches = []
    for call in range(CALLS):
        numbers = torch.rand(USERS, generator=generator, dtype=torch.float64).tolist()
        batches.append([(KINDS[(user + call) % len(KINDS)], number) for user, number in enumerate(numbers)])
    *found, refused = sim_device("2x1").run(choose_per_user, logits, batches, timeout=1500)
    clear = 0
    for draws, tokens in zip(batches, found, strict=True):
        for user, (params, number) in enumerate(draws):
            masses, numbers = warp_logits(logits[user : user + 1], params), torch.tensor([number], dtype=torch.float64)
            if bool(margin(masses, numbers) >= BAND):
                clear += 1
                assert int(tokens[user]) == int(inverse_cdf(masses, numbers)), (user, params)
    assert clear > 0.9 * CALLS * USERS
    assert refused == "chips sample users greedily or with top_k up to 32; got top_k 33"


@given(st.floats(0, exclude_min=True, allow_infinity=False))
def test_every_temperature_has_a_nearest_one_that_the_chips_take(temperature):
    nearest = check_temperature(nearest_temperature(temperature))
    assert nearest == temperature or temperature < 1e-4 == nearest or temperature > 1e4 == nearest
