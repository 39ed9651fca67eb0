# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Guesses that follow the attention on a simulated 2x2 mesh: each chip of a row lists the tiles of its own heads, and
the row decides over all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.tiny import TINY
from tests.models.tt.budget_programs import Part, bits_of, decode_by_budget
from tests.support.alspec_reference import chosen_tiles, own_masses
from tests.support.tt_programs import figures
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS, YIELDED
from tt_kernels.speculative_flash_decode.guess_range import MASS_UNIT

LAYERS, HEADS, CAPACITY, CHUNK_SIZE, BUDGET = 2, 2, 256, 64, 0.7
ROWS = replace(
    TINY,
    vocab_size=64,
    hidden_size=128,
    intermediate_size=128,
    num_hidden_layers=LAYERS,
    num_attention_heads=4,
    num_key_value_heads=HEADS,
    head_dim=64,
    max_position_embeddings=CAPACITY,
)
# Weights and prompt of which no decision is within a fifth of the threshold, and no choice of tiles turns on less than
# 2 % of a mass.
SEED, PROMPT_SEED, PROMPT_TOKENS, THRESHOLD, STEPS = 1, 12, 231, 0.2, 4
RANGE = GuessRange.by_budget(CHUNK_SIZE, BUDGET)
HITS = [[False, False], [False, True], [False, True], [False, True]]  # by step and layer


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(3000)
@torch.inference_mode()
def test_each_chip_of_a_row_chooses_for_its_own_heads(sim_mesh):
    generator = torch.Generator().manual_seed(PROMPT_SEED)
    prompt = torch.randint(0, ROWS.vocab_size, (PROMPT_TOKENS,), generator=generator).tolist()
    state = random_state_dict(ROWS, SEED)
    model, policy = ReferenceLlama.from_state_dict(ROWS, state), ALSpecAttention(THRESHOLD, RANGE)
    cache = model.new_cache(1, CAPACITY)
    row = model.prefill([prompt], cache)[0]
    prefilled = [[layer[:].clone() for layer in part] for part in (cache.keys, cache.values)]
    tokens, logits, known = [], [], []
    for _ in range(STEPS):
        tokens.append([int(row.argmax())])
        known.append(own_masses(policy.by_budget, LAYERS, 1))
        row = model.forward(torch.tensor([tokens[-1]]), cache, policy=policy)[0, 0].float()
        logits.append(row)
    assert [step.accepted[:, 0, 0].tolist() for step in policy.statistics.steps] == HITS
    part = Part(THRESHOLD, tokens, [[PROMPT_TOKENS + step] for step in range(STEPS)])

    found = sim_mesh((2, 2), "4x2").run(
        decode_by_budget, ROWS, state, prefilled, CHUNK_SIZE, BUDGET, CAPACITY, [part], timeout=2900
    )

    chosen = 0
    for number, (ours, wanted) in enumerate(zip(found["steps"], logits, strict=True)):
        assert all(torch.equal(chip, ours["logits"][0]) for chip in ours["logits"])
        assert figures(ours["logits"][0][0], wanted)["pcc"] >= 0.99
        assert int(ours["logits"][0][0].argmax()) == int(wanted.argmax())
        sender = 0
        for layer, hit in enumerate(HITS[number]):
            sent, received = (ours["priorities"][rank][layer][0] for rank in (sender, 1 - sender))
            assert (sent, received) == (YIELDED if hit else HOLDS_EXACT, HOLDS_GUESS)
            sender ^= hit
        for layer in range(LAYERS):
            for chip in range(4):
                rank, head = divmod(chip, 2)
                masses, words = known[number][layer][rank][0], ours["chosen"][layer][chip][0, 0]
                if masses is None:
                    assert not words.any()
                    continue
                assert bits_of(words) == chosen_tiles(masses[head], RANGE, PROMPT_TOKENS + number + 1)
                chosen += 1
    assert chosen >= 2 * (STEPS - 1), "rank 0 sends layer 0 in every step"
    for layer in range(LAYERS):
        for chip in range(4):
            rank, head = divmod(chip, 2)
            masses = policy.by_budget.known(rank, layer, 0)
            if masses is not None:
                held = found["steps"][-1]["masses"][layer][chip][0, 0, : masses.shape[-1]].double() * MASS_UNIT
                assert float(((held - masses[head]) / masses[head]).abs().max()) < 0.02
            for ours, part in zip(found["caches"][layer][chip], (cache.keys, cache.values), strict=True):
                length = PROMPT_TOKENS + STEPS
                assert figures(ours[0, 0, :length], part[layer][0, head, :length])["pcc"] >= 0.999
