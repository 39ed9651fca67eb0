# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of one layer with drawn outcomes: residual, priorities and log are exact at each."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tiny import TINY
from tests.models.tt.forced_outcomes import Drawn, forced
from tests.models.tt.pair_cases import CAPACITY, CHUNK_SIZE, PROMPT_TOKENS
from tests.models.tt.sharding_programs import BANKED
from tests.support.tt_programs import figures
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS, YIELDED

STEPS, POSITION = 100, 101
# A tile of everything: what is compared is who computes and who takes, not how much.
SMALLEST = replace(
    TINY,
    vocab_size=32,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=1,
)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(7200)
def test_a_hundred_drawn_outcomes_leave_what_one_chip_alone_computes(sim_mesh):
    """Bit for bit: after a hit both rows hold the layer's output from the guess, after a miss that from the exact
    result, as the same kernels without a peer give them. Two tokens at one position, so that no step sees what
    another wrote, and either outcome: of these four traces one is replayed at each step."""
    draw = random.Random(5)
    steps = [draw.choice([Drawn(7, POSITION, False), Drawn(21, POSITION, False)]) for _ in range(STEPS)]
    steps = [step._replace(hit=draw.random() < 0.5) for step in steps]
    assert len(set(steps)) == 4 and abs(sum(step.hit for step in steps) / STEPS - 0.5) < 0.2
    state, given = prepared(SMALLEST)
    told, alone = sim_mesh((2, 1), "2x2", dispatch="fast").run(
        forced, SMALLEST, state, given, CHUNK_SIZE, CAPACITY, steps, timeout=7000
    )
    check(told, alone, steps)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(7200)
def test_a_hit_and_a_miss_of_sharded_steps(sim_mesh):
    """Bit for bit as a chip alone with the same sharding, and as interleaved steps to PCC 0.999. Both chips are whole:
    the products want cores beside all banks."""
    config = replace(BANKED, max_position_embeddings=CAPACITY)
    state, given = prepared(config)
    steps = [Drawn(3, 96, True), Drawn(3, 96, False)]
    results = []
    for grid, decode_sharding in (("2x2", "interleaved"), ("8x8", "sharded")):
        told, alone = sim_mesh((2, 1), grid, dispatch="fast").run(
            forced, config, state, given, CHUNK_SIZE, CAPACITY, steps, decode_sharding, timeout=3500
        )
        check(told, alone, steps)
        results.append(alone)
    for step in steps:
        found = figures(results[1][step], results[0][step])
        logger.info("{}: {}", step, found)
        assert found["pcc"] >= 0.999


def prepared(config) -> tuple[dict, list[list[torch.Tensor]]]:
    """Random weights, and keys and values of a random prompt, as of `load_cache`."""
    state = random_state_dict(config, 1)
    model = ReferenceLlama.from_state_dict(config, state)
    tokens = torch.randint(0, config.vocab_size, (PROMPT_TOKENS + 16,), generator=torch.Generator().manual_seed(3))
    cache = model.new_cache(1, len(tokens))
    model.prefill([tokens.tolist()], cache)
    return state, [[layer[0] for layer in part] for part in (cache.keys, cache.values)]


def check(told: list[dict], alone: dict[Drawn, torch.Tensor], steps: list[Drawn]) -> None:
    """Residual, priorities and counts of each step."""
    assert len(told) == len(steps)
    values = list(alone.values())
    assert all(not torch.equal(values[0], other) for other in values[1:]), "each kind of step has its own result"
    for number, (found, step) in enumerate(zip(told, steps, strict=True)):
        for row in found["rows"]:
            assert torch.equal(row, alone[step]) and bool(row.any()), (number, step)
        assert found["priorities"] == [YIELDED if step.hit else HOLDS_EXACT, HOLDS_GUESS], (number, step)
        hits = sum(earlier.hit for earlier in steps[: number + 1])
        assert found["counts"] == (hits, number + 1 - hits, 0), number
