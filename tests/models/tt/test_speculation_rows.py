# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Speculation with tensor parallelism on a simulated 2x2 mesh: the chips of a row decide together, over all heads."""

from __future__ import annotations

import pytest
import torch

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from tests.models.tt.speculation_programs import ROWS, row_decisions
from tests.support.alspec_reference import Recorded, reference_steps
from tests.support.tt_programs import figures
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS, YIELDED

# Weights and prompt for which the two chips of a row would decide differently by their own heads, at both steps.
SEED, PROMPT_SEED, PROMPT_TOKENS, THRESHOLD, CHUNK_SIZE, CAPACITY, STEPS = 2, 1011, 70, 0.5, 32, 128, 2


class ByHalves(Recorded):
    """Keeps what each half of the heads alone would decide: `halves`, by step."""

    halves: list[list[bool]] = []

    def attend(self, layer, segments):
        pairs = zip(segments.guess().chunk(2, 1), segments.exact().chunk(2, 1), strict=True)
        alone = [bool((guess - exact).norm() < self.threshold * exact.norm()) for guess, exact in pairs]
        self.halves = [*self.halves, alone]
        return super().attend(layer, segments)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(2400)
def test_a_row_takes_one_decision_over_all_its_heads(sim_mesh):
    generator = torch.Generator().manual_seed(PROMPT_SEED)
    prompt = torch.randint(0, ROWS.vocab_size, (PROMPT_TOKENS,), generator=generator).tolist()
    state, policy = random_state_dict(ROWS, SEED), ByHalves(THRESHOLD, GuessRange(CHUNK_SIZE, CHUNK_SIZE))
    wanted = reference_steps(ReferenceLlama.from_state_dict(ROWS, state), prompt, STEPS, policy, CAPACITY)
    assert all(first != second for first, second in policy.halves)
    assert wanted.accepted == [[False], [True]]

    cache = wanted.cache
    prefilled = [[layer[0, :, :PROMPT_TOKENS] for layer in part] for part in (cache.keys, cache.values)]
    told = sim_mesh((2, 2), "4x2").run(
        row_decisions,
        ROWS,
        state,
        prefilled,
        CHUNK_SIZE,
        CAPACITY,
        THRESHOLD,
        PROMPT_TOKENS,
        wanted.tokens[:-1],
        timeout=2300,
    )
    assert told["decisions"] == [
        [[sender], [sender], [HOLDS_GUESS], [HOLDS_GUESS]] for sender in (HOLDS_EXACT, YIELDED)
    ]
    assert not told["failures"]
    for rows, logits, token in zip(told["logits"], wanted.logits[1:], wanted.tokens[1:], strict=True):
        assert torch.equal(*rows) and int(rows[0].argmax()) == token
        assert figures(rows[0], logits)["pcc"] >= 0.99
