# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A conversation whose decode steps speculate between two simulated chips, against the reference's ALSpec policy."""

from __future__ import annotations

import pytest
import torch
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.tiny import TINY
from tests.models.tt.turn_programs import speculated_turns

# Prompts whose best logits lead by 0.38 and more, and whose guesses are off by 0.55 and 0.93 of the exact result.
SEED, THRESHOLD = 2222, 0.72


def prompt(length: int, seed: int) -> list[int]:
    return torch.randint(0, TINY.vocab_size, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_second_turn_speculates_behind_the_cached_one(sim_mesh):
    """The first turn is too short to speculate; of the second one's two steps the first is accepted, the other not."""
    config = TINY.with_layers(1)
    state = random_state_dict(config, 0)
    first, more = prompt(38, SEED), prompt(26, SEED + 5000)
    told = sim_mesh((2, 1), "2x2").run(speculated_turns, config, state, first, more, (2, 3), THRESHOLD, timeout=3500)
    logger.info("{}", told)
    reference, held = ReferenceLlama.from_state_dict(config, state), told["held"]
    for whole, new, text in ((first, 2, told["texts"][0]), (held + more, 3, told["texts"][1])):
        policy = ALSpecAttention(THRESHOLD, GuessRange(32, 32))
        expected = generate(reference, [whole], max_new_tokens=new, policy=policy, eos_token_ids=())
        assert text == expected.token_ids[0]
    assert held == first + told["texts"][0][:1] and told["starts"] == [0, 32]
    assert (policy.statistics.hits, policy.statistics.misses) == (1, 1)
    assert told["counts"] == [(0, 0, 1), (1, 1, 0), (1, 1, 1)] and told["failures"] == ()
    assert told["rows agree"]
