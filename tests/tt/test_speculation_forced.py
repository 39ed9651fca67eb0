# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A hundred steps of one layer with drawn outcomes: residual, priorities and log are exact at each."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from loguru import logger

from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.random_weights import random_state_dict
from tests.support.pair_cases import CHUNK_SIZE, PROMPT_TOKENS, tiny
from tests.support.tt_programs import figures
from tests.tt.decode_plan_programs import BANKED
from tests.tt.forced_outcomes import forced
from tt_kernels.common.priority import ACCEPTED, RECEIVED, REJECTED

STEPS, CAPACITY = 100, 224


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(3600)
def test_a_hundred_drawn_outcomes_leave_what_one_chip_alone_computes(sim_mesh):
    """Bit for bit: after a hit both rows hold the layer's output from the guess, after a miss that from the exact
    result, as the same kernels without a peer give them. Every step but the first of each kind replays a trace."""
    case = tiny()
    config, draw = case.config.with_layers(1), random.Random(5)
    state, tokens = random_state_dict(config, 0), [draw.randrange(config.vocab_size) for _ in range(STEPS)]
    hits = [draw.random() < 0.5 for _ in range(STEPS)]
    assert 40 <= sum(hits) <= 60
    told = sim_mesh((2, 1), "2x2", dispatch="fast").run(
        forced, config, state, cached(config, state, case.prompt), CHUNK_SIZE, CAPACITY, PROMPT_TOKENS,
        tokens, hits, timeout=3500,
    )  # fmt: skip
    check(told, hits)
    assert any(not torch.equal(a["alone"], b["alone"]) for a, b in zip(told, told[1:], strict=False))


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(7200)
def test_a_hit_and_a_miss_by_the_fast_plan(sim_mesh):
    """Bit for bit as a chip alone by the same plan, and as the simple plan to PCC 0.999. Both chips are whole: the
    products want cores beside all banks."""
    config = replace(BANKED, max_position_embeddings=128)
    state, tokens, hits = random_state_dict(config, 1), [3, 5], [True, False]
    prompt = torch.randint(0, config.vocab_size, (PROMPT_TOKENS,), generator=torch.Generator().manual_seed(3))
    given = (
        config,
        state,
        cached(config, state, prompt.tolist()),
        CHUNK_SIZE,
        128,
        PROMPT_TOKENS,
        tokens,
        hits,
    )
    simple = sim_mesh((2, 1), "2x2", dispatch="fast").run(forced, *given, timeout=1800)
    fast = sim_mesh((2, 1), "8x8", dispatch="fast").run(forced, *given, "fast", timeout=7000)
    for told in (simple, fast):
        check(told, hits)
    for ours, theirs in zip(fast, simple, strict=True):
        found = figures(ours["alone"], theirs["alone"])
        logger.info("{}", found)
        assert found["pcc"] >= 0.999


def cached(config, state, prompt: list[int]) -> list[list[torch.Tensor]]:
    """Keys and values of a prompt, as of `load_cache`."""
    model = ReferenceLlama.from_state_dict(config, state)
    cache = model.new_cache(1, len(prompt))
    model.prefill([prompt], cache)
    return [[layer[0] for layer in part] for part in (cache.keys, cache.values)]


def check(told: list[dict], hits: list[bool]) -> None:
    """Residual, priorities and counts of each step."""
    assert len(told) == len(hits)
    for step, (found, hit) in enumerate(zip(told, hits, strict=True)):
        for row in found["rows"]:
            assert torch.equal(row, found["alone"]) and bool(row.any()), (step, hit)
        assert found["priorities"] == [ACCEPTED if hit else REJECTED, RECEIVED], (step, hit)
        so_far = hits[: step + 1]
        assert found["counts"] == (sum(so_far), len(so_far) - sum(so_far), 0), step
