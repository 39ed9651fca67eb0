# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""One captured trace of a speculative decode step serves hits, misses and bypassed positions on two simulated chips."""

from __future__ import annotations

import pytest
import torch

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.tiny import TINY
from tests.models.tt.speculation_programs import traced
from tests.support.alspec_reference import Recorded, reference_steps

ONE_LAYER = TINY.with_layers(1)
# Weights and prompt for which outcomes alternate and no two best logits lie close.
SEED, PROMPT_SEED, PROMPT_TOKENS, THRESHOLD, CHUNK_SIZE, CAPACITY, STEPS = 0, 1019, 62, 0.7, 32, 128, 7


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_replays_of_one_trace_follow_the_reference(sim_mesh):
    """The first step runs eagerly, the second is captured; the chips feed each replay its token and position."""
    generator = torch.Generator().manual_seed(PROMPT_SEED)
    prompt = torch.randint(0, TINY.vocab_size, (PROMPT_TOKENS,), generator=generator).tolist()
    state = random_state_dict(ONE_LAYER, SEED)
    policy = Recorded(THRESHOLD, GuessRange(CHUNK_SIZE, CHUNK_SIZE))
    wanted = reference_steps(ReferenceLlama.from_state_dict(ONE_LAYER, state), prompt, STEPS, policy, CAPACITY)
    outcomes = ["bypassed" if r[0] is None else a[0] for r, a in zip(wanted.ratios, wanted.accepted, strict=True)]
    assert outcomes == ["bypassed", True, True, False, True, False, True]

    told = sim_mesh((2, 1), "2x2", dispatch="fast").run(
        traced, ONE_LAYER, state, prompt, CHUNK_SIZE, CAPACITY, THRESHOLD, STEPS + 1, timeout=1700
    )
    assert told["tokens"] == wanted.tokens
    assert told["counts"] == (outcomes.count(True), outcomes.count(False), 1)
    assert told["replays"] == STEPS - 1
    # An exchange before the layer and one behind it; after a hit the second row sends.
    assert told["sent"] == (2 * STEPS - outcomes.count(True), outcomes.count(True)) and not told["failures"]
