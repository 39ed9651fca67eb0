# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens drawn from whole vocabularies, and what top_k and top_p leave of them: small ones on simulated chips, 128256
tokens in a model of the arithmetic that finds top_p, both against the reference."""

import math

import pytest
import torch
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams, filter_logits, inverse_cdf, warp_logits
from tests.models.tt.sampling.full_vocab_programs import draw_on_a_row, keep, keys_of
from tests.support.tt_tolerances import margin

# What full_vocab.py says: numbers as near to a border between two tokens may fall otherwise; a sum of masses is
# off by less, of the whole.
BORDER, SUM = 2.0**-19, 2e-5
VOCAB = 128256
LEAST_LOGIT = -(2.0**126)


@pytest.mark.sim
@pytest.mark.timeout(900)
def test_draws_of_two_chips_are_the_references(sim_mesh):
    """By temperature alone, from 64 columns of a chip, 56 of the other, padding: numbers beside borders, 0, nearly 1.

    Rows: any, flat, peaked, all mass on the second chip, zeros of both signs. Ranks are counted across chips.
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
    told = sim_mesh((1, 2), "2x1").run(draw_on_a_row, logits, params, numbers, timeout=800)
    drawn, other = told["drawn"]
    assert torch.equal(drawn, other)
    clear = margin(masses, numbers) >= BORDER
    assert clear.sum() >= 7 and clear[3]
    expected = inverse_cdf(masses, numbers)
    logger.info("{} of {} numbers are clear of borders; {}", int(clear.sum()), len(clear), drawn)
    assert torch.equal(drawn[clear], expected[clear])
    assert (masses.gather(1, drawn[:, None]) > 0).all()
    zero = (logits == 0).float()
    assert zero[4].sum() > 40 and torch.equal(told["ranks"], zero.cumsum(1) - zero)


def check_kept(sim_device, logits: torch.Tensor, params: SamplingParams, keys=None) -> None:
    """The kept sets are the reference's, their logits as they were, and what is drawn from them the reference's."""
    numbers = (torch.arange(len(logits), dtype=torch.float64) + 0.3) / len(logits)
    found, drawn = sim_device("2x1").run(keep, logits, params, (1, 3), numbers, keys, timeout=1500)
    masses = warp_logits(logits, params)
    logger.info("kept: {}; drawn: {}", (masses > 0).sum(1).tolist(), drawn.tolist())
    least = torch.tensor(LEAST_LOGIT, dtype=logits.dtype)
    assert torch.equal(found, torch.where(masses > 0, logits, least))
    assert (margin(masses, numbers) >= BORDER).all()
    assert torch.equal(drawn, inverse_cdf(masses, numbers))


@pytest.mark.sim
@pytest.mark.timeout(900)
def test_what_top_k_and_top_p_keep_among_few_values(sim_device):
    """top_k 40, then top_p 0.9 within it, among 16 values of logits: equal ones stand at both borders. The search for
    them has 4 halvings of its 16, for time; the last row is flat."""
    generator = torch.Generator().manual_seed(6)
    logits = (1 + torch.randint(0, 15, (6, 90), generator=generator) / 128).bfloat16()
    logits[5] = 1.0
    below_one = float(torch.ones(1).view(torch.int32) >> 16) - 1
    check_kept(sim_device, logits, SamplingParams(0.05, top_k=40, top_p=0.9), (below_one, 4))


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_top_k_and_top_p_keep_is_the_references(sim_device):
    """All halvings. Rows: any, flat, few values, peaked, zeros of both signs, some -inf."""
    generator = torch.Generator().manual_seed(4)
    logits = (torch.randn(8, 90, generator=generator) * 3).bfloat16()
    logits[1], logits[2] = -2.5, logits[2].round() / 2
    logits[3, 17], logits[4, ::2], logits[5, 30:50] = 60.0, -0.0, -math.inf
    logits[4, 1::4] = 0.0
    check_kept(sim_device, logits, SamplingParams(1.5, top_k=40, top_p=0.9))


@pytest.mark.sim
def test_keys_have_the_order_of_bfloat16_numbers(sim_device):
    """All exponents of both signs, and zeros."""
    exponents = torch.arange(1, 255).repeat_interleave(2)
    positive = ((exponents << 7) + torch.tensor([0, 127]).repeat(254)).to(torch.int16).view(torch.bfloat16)
    numbers = torch.cat((positive, -positive, torch.tensor([0.0, -0.0] * 4).bfloat16())).reshape(32, 32)
    keys = sim_device("2x1").run(keys_of, numbers)
    order = numbers.flatten().float().argsort(stable=True)
    ranked, values = keys.flatten()[order], numbers.flatten()[order]
    assert torch.equal(ranked[1:] > ranked[:-1], values[1:] > values[:-1])
    assert torch.equal(ranked[1:] == ranked[:-1], values[1:] == values[:-1])
    assert torch.equal(keys, keys.round()) and keys.abs().max() < 2**15


def cut(x: torch.Tensor) -> torch.Tensor:
    """What the matrix unit makes of numbers [..., lanes]: 11 bits at the largest exponent of eight."""
    groups = x.reshape(*x.shape[:-1], -1, 8)
    exponent = torch.frexp(groups.abs().amax(-1, keepdim=True))[1]
    step = torch.ldexp(torch.ones_like(groups[..., :1]), exponent - 11)
    return (torch.trunc(groups / step) * step).reshape(x.shape)


def in_tiles(logits: torch.Tensor, fill: float) -> torch.Tensor:
    """[rows, vocab] -> [rows, blocks, tiles, 32]."""
    tiles = -(-logits.shape[1] // 32)
    width = math.ceil(math.sqrt(tiles))
    blocks = -(-tiles // width)
    padded = torch.nn.functional.pad(logits, (0, blocks * width * 32 - logits.shape[1]), value=fill)
    return padded.reshape(len(logits), blocks, width, 32)


def large_rows() -> torch.Tensor:
    """bfloat16 [5, 128256]: as of a model, narrow, wide, flat, and one token before a tail of two thirds a percent."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(5, VOCAB, generator=generator) * torch.tensor([3.0, 0.5, 12.0, 0.0, 0.01])[:, None]
    logits[4, 777] = math.log(VOCAB) + 5.0
    return logits.bfloat16()


@pytest.mark.parametrize("top_p", [0.5, 0.9, 0.999])
def test_top_p_of_128256_tokens_cuts_where_the_reference_does(top_p):
    """The sums that the threshold is searched by: pieces of lanes' sums, 1024 of them the whole."""
    logits = large_rows()
    masses = torch.softmax(logits.double(), dim=-1)
    kept = filter_logits(logits, SamplingParams(1.0, top_p=top_p)) > -math.inf
    tiles = in_tiles(logits.float(), -(2.0**126))
    parts = torch.exp(tiles - tiles.amax((1, 2, 3), keepdim=True))

    def lanes_summed(parts: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
        scaled = parts.double().sum((1, 2)).float() * unit
        whole = torch.floor(scaled)
        return (cut(whole) + cut(scaled - whole)).double().sum(1).float()[:, None]

    unit = 1024 / parts.sum((1, 2)).amax(1, keepdim=True)
    share = unit * 1024 / lanes_summed(parts, unit)
    for row in range(len(logits)):
        least = logits[row][kept[row]].min()
        for threshold in (least, logits[row][kept[row]].median()):
            chosen = tiles[row : row + 1] >= threshold.float()
            found = float(lanes_summed(parts[row : row + 1] * chosen, share[row : row + 1])) / 1024
            exact = float(masses[row][logits[row] >= threshold].sum())
            logger.info("row {}, from {}: {:.7f}, exactly {:.7f}", row, float(threshold), found, exact)
            assert abs(found - exact) < SUM
