# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens drawn from a whole vocabulary on simulated chips, against the reference."""

import pytest
import torch
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams, inverse_cdf, warp_logits
from tests.models.tt.sampling.full_vocab_programs import draw_on_a_row
from tests.support.tt_tolerances import margin

# As FullVocabSampler says: a number that near to a border between two tokens may choose the other one.
BORDER = 2.0**-19


@pytest.mark.sim
@pytest.mark.timeout(900)
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
    drawn, other = sim_mesh((1, 2), "2x1").run(draw_on_a_row, logits, params, numbers, timeout=800)
    assert torch.equal(drawn, other)
    clear = margin(masses, numbers) >= BORDER
    assert clear.sum() >= 7 and clear[3]
    expected = inverse_cdf(masses, numbers)
    logger.info("{} of {} numbers are clear of borders; {}", int(clear.sum()), len(clear), drawn)
    assert torch.equal(drawn[clear], expected[clear])
    assert (masses.gather(1, drawn[:, None]) > 0).all()
