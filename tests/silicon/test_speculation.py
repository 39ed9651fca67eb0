# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation inside the model on two boards: `pytest --device n150`."""

from __future__ import annotations

import pytest
import torch

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tiny import TINY
from tests.models.tt.speculation_programs import Run, speculate, traced
from tests.support.alspec_reference import Recorded, reference_steps
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, YIELDED

CHUNK_SIZE, CAPACITY, PROMPT_TOKENS = 32, 128, 62
TRACE_REGION_BYTES = 16 * 1024**2


def prompt(seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, TINY.vocab_size, (PROMPT_TOKENS,), generator=generator).tolist()


@pytest.mark.silicon
def test_two_boards_decide_as_the_reference(board_mesh):
    """The case of tests/models/tt/test_speculation_pair.py: tokens, and who holds every layer of 12
    steps."""
    state = random_state_dict(TINY, 0)
    wanted = reference_steps(
        ReferenceLlama.from_state_dict(TINY, state), prompt(1003), 12, Recorded(0.6, CHUNK_SIZE), CAPACITY
    )
    runs = [Run(0.6, PROMPT_TOKENS, wanted.tokens[:-1])]
    cache = wanted.cache
    prefilled = [[layer[0, :, :PROMPT_TOKENS] for layer in part] for part in (cache.keys, cache.values)]
    told = board_mesh((2, 1)).run(speculate, TINY, state, prompt(1003), prefilled, CHUNK_SIZE, CAPACITY, runs)
    (run,) = told["runs"]
    assert [int(rows[0].argmax()) for rows in run["logits"]] == wanted.tokens[1:]
    names = {YIELDED: True, HOLDS_EXACT: False, HOLDS_EXACT_UNVERIFIED: None}
    for rows, ratios, accepted in zip(run["decisions"], wanted.ratios, wanted.accepted, strict=True):
        sender = 0
        for ours, ratio, hit in zip(zip(*rows, strict=True), ratios, accepted, strict=True):
            assert ours[1 - sender] == HOLDS_GUESS and names[ours[sender]] is (None if ratio is None else hit)
            sender = 1 - sender if ours[sender] == YIELDED else sender


@pytest.mark.silicon
def test_one_trace_serves_every_outcome_on_two_boards(board_mesh):
    """The case of tests/models/tt/test_speculation_trace.py."""
    config = TINY.with_layers(1)
    state = random_state_dict(config, 0)
    wanted = reference_steps(
        ReferenceLlama.from_state_dict(config, state), prompt(1019), 7, Recorded(0.7, CHUNK_SIZE), CAPACITY
    )
    worker = board_mesh((2, 1), trace_region_size=TRACE_REGION_BYTES)
    told = worker.run(traced, config, state, prompt(1019), CHUNK_SIZE, CAPACITY, 0.7, 8)
    assert told["tokens"] == wanted.tokens and told["replays"] == 6 and not told["failures"]
    hits = sum(accepted for (accepted,) in wanted.accepted)
    assert told["counts"] == (hits, 6 - hits, 1)
