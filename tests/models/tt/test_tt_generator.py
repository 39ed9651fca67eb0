# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Texts of several users from the TT-NN generator on the simulated chip, which has a core for each of two users."""

import pytest
import torch
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams
from tests.models.tt.sampling.sampling_programs import generate_sampled
from tests.models.tt.turn_programs import turns
from tests.support.tt_programs import generate_batch
from tests.support.tt_tolerances import BAND, GRID, NEAR_TIE, margin, prompt

pytestmark = [pytest.mark.sim, pytest.mark.timeout(1500)]


def test_greedy_texts_of_users_at_different_positions(sim_device):
    """Arg-max on the device is that of the logits read back, and the texts are the reference's up to a near-tie."""
    told = sim_device(GRID).run(generate_batch, [prompt(5, 1), prompt(33, 2)], 3, timeout=1200)
    logger.info("{}", told)
    assert told["device"] == told["host"] == told["argmax"]
    for got, expected, gaps in zip(told["device"], told["reference"], told["gaps"], strict=True):
        differ = next((i for i in range(len(got)) if got[i] != expected[i]), None)
        assert differ is None or gaps[differ] < NEAR_TIE


def test_sampled_texts_are_the_hosts_and_repeat(sim_device):
    """The same seeds draw the same texts on the chip and on the host, and on the chip again in another place.

    Both users have the same prompt and, by their seeds, different texts. The last one's is repeated without the first.
    Without top-k the chip draws from the whole vocabulary.
    """
    params = SamplingParams(1.5, top_k=30, seed=6)
    told = sim_device(GRID).run(generate_sampled, [prompt(5, 1)] * 2, 2, params, timeout=1200)
    logger.info("{}", {name: told[name] for name in ("device", "host", "alone", "device from all")})
    for user, (got, expected) in enumerate(zip(told["device"], told["host"], strict=True)):
        differ = next((i for i in range(len(got)) if got[i] != expected[i]), None)
        assert differ is None or margin(told["masses"][user], told["numbers"][user])[differ] < BAND
    assert told["device"][0] != told["device"][1] == told["alone"][0]
    clear = margin(told["all"], told["numbers"][:1, 0])[0] >= BAND
    assert clear and told["device from all"] == told["host from all"] and (told["all"] > 0).all()


def test_a_second_turn_goes_behind_the_cached_one(sim_device):
    """Text, keys and values are, bit for bit, those of one whole prefill: of a context, only what is in no whole block
    is computed again."""
    first, more = prompt(32, 1), prompt(3, 3)
    told = sim_device(GRID).run(turns, first, more, 2, timeout=1200)
    assert told["held"] == first + told["texts"][0][:1] and told["starts"] == [0, 32]
    assert told["texts"][1] == told["texts"][2] != told["texts"][0]
    for kept, whole in zip(*told["caches"], strict=True):
        assert kept.shape[1] == 33 + 3 + 1 and torch.equal(kept, whole)
