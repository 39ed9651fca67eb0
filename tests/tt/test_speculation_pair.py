# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A two-layer Llama that speculates between two simulated chips, against the reference's ALSpec policy."""

from __future__ import annotations

import pytest
import torch
from loguru import logger

from models.llama31_8b.demo.backends.sim import TINY
from models.llama31_8b.reference.alspec.policies import ExactAttention, SinkAttention
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.random_weights import random_state_dict
from tests.support.alspec_reference import Recorded, ReferenceSteps, reference_steps
from tests.support.tt_programs import figures
from tests.tt.speculation_programs import SHORT_PROMPT, Run, speculate
from tt_kernels.common.priority import ACCEPTED, BYPASSED, RECEIVED, REJECTED
from tt_kernels.token_guard.op import FAILED

pytestmark = [pytest.mark.sim, pytest.mark.timeout(3600)]
GRID = "2x2"  # attention wants a worker, an output and an exchange core
CHUNK_SIZE, CAPACITY = 32, 128
# Weights and prompt for which no two best logits lie close, and every pattern of two layers' outcomes occurs.
SEED, PROMPT_SEED, PROMPT_TOKENS, THRESHOLD = 0, 1003, 62, 0.6
# Steps of the whole comparison (--run-slow), and of the short one: bypassed, hit and hit, hit and miss, miss and miss.
STEPS, FIRST_STEPS = 12, 4
# Steps with threshold 0, and with an infinite one, stand behind those that are bypassed or whose guess is exact: the
# cache in front of them then does not depend on the threshold.
SKIPPED = 2
LEAST_PCC = 0.99
NEAR_BOUND = 0.01


@pytest.fixture(scope="module")
def model():
    return ReferenceLlama.from_state_dict(TINY, random_state_dict(TINY, SEED))


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    generator = torch.Generator().manual_seed(PROMPT_SEED)
    return torch.randint(0, TINY.vocab_size, (PROMPT_TOKENS,), generator=generator).tolist()


@pytest.fixture(scope="module")
def steps(request) -> tuple[int, int]:
    """Decode steps with the threshold, and with each of 0 and infinity: one takes half a minute of a core."""
    return (STEPS, 2) if request.config.getoption("--run-slow") else (FIRST_STEPS, 1)


@pytest.fixture(scope="module")
def expected(model, prompt, steps) -> list[ReferenceSteps]:
    """The reference with the threshold, exact, and always taking the guess."""
    policies = [(Recorded(THRESHOLD, CHUNK_SIZE), steps[0])]
    policies += [(policy(CHUNK_SIZE), SKIPPED + steps[1]) for policy in (ExactAttention, SinkAttention)]
    return [reference_steps(model, prompt, count, policy, CAPACITY) for policy, count in policies]


@pytest.fixture(scope="module")
def told(sim_mesh, prompt, expected) -> dict:
    """What the pair did, fed with the reference's tokens."""
    cases = zip((THRESHOLD, 0.0, float("inf")), (0, SKIPPED, SKIPPED), expected, strict=True)
    runs = [
        Run(threshold, PROMPT_TOKENS + skipped, found.tokens[skipped:-1])
        for threshold, skipped, found in cases
    ]
    worker = sim_mesh((2, 1), GRID)
    state = random_state_dict(TINY, SEED)
    cache = expected[0].cache
    prefilled = [[layer[0, :, :PROMPT_TOKENS] for layer in part] for part in (cache.keys, cache.values)]
    return worker.run(speculate, TINY, state, prompt, prefilled, CHUNK_SIZE, CAPACITY, runs, timeout=3500)


def test_tokens_are_the_references_and_logits_agree_on_both_rows(told, expected):
    errors = []
    for run, wanted in zip(told["runs"], expected, strict=True):
        steps = len(run["logits"])
        for rows, logits, token in zip(
            run["logits"], wanted.logits[-steps:], wanted.tokens[-steps:], strict=True
        ):
            assert torch.equal(*rows), "the rows of the mesh must end a step with the same residual"
            errors.append(figures(rows[0], logits))
            assert errors[-1]["pcc"] >= LEAST_PCC, errors[-1]
            assert int(rows[0].argmax()) == token
    for name in ("absolute", "relative"):
        logger.info("largest {} error of logits: {:.4f}", name, max(error[name] for error in errors))
    logger.info("lowest PCC: {:.6f}", min(error["pcc"] for error in errors))


def test_decisions_are_the_references(told, expected):
    """By step and layer one row says accepted, rejected or bypassed, the other that it received."""
    names = {ACCEPTED: True, REJECTED: False, BYPASSED: None}
    sender, near = 0, 0
    for step, rows in enumerate(told["runs"][0]["decisions"]):
        sender = 0  # every step starts with priorities [2, 0]
        for layer, ours in enumerate(zip(*rows, strict=True)):
            assert ours[1 - sender] == RECEIVED, (step, layer, ours)
            ratio = expected[0].ratios[step][layer]
            wanted = None if ratio is None else expected[0].accepted[step][layer]
            if ratio is not None and abs(ratio / THRESHOLD - 1) < NEAR_BOUND:
                near += 1
            else:
                assert names[ours[sender]] is wanted, (step, layer, ours, ratio)
            if ours[sender] == ACCEPTED:
                sender = 1 - sender
    assert near == 0, "these weights were chosen so that no ratio is near the bound"


def test_outcomes_count_hits_misses_and_bypassed_positions(told, expected, steps):
    counted = told["runs"][0]["outcomes"]
    for layer, counts in enumerate(counted.layers):
        ratios = [row[layer] for row in expected[0].ratios]
        accepted = [row[layer] for row in expected[0].accepted]
        hits, bypassed = sum(accepted), ratios.count(None)
        assert (counts.hits, counts.misses, counts.bypassed) == (hits, steps[0] - hits - bypassed, bypassed)
        assert hits and bypassed
    assert sum(counts.misses for counts in counted.layers) >= 3
    assert sum(counted.sent) == steps[0] * 3 and min(counted.sent) > 0, "two layers and the last exchange"
    assert not counted.failures and counted.ties == 0


def test_threshold_0_accepts_nothing_and_an_infinite_one_everything(told, steps):
    none, every = (run["outcomes"].layers for run in told["runs"][1:])
    assert [(c.hits, c.misses, c.bypassed) for c in none] == [(0, steps[1], 0)] * 2
    assert [(c.hits, c.misses, c.bypassed) for c in every] == [(steps[1], 0, 0)] * 2


def test_both_rows_cache_every_token(told, expected, steps):
    cached = PROMPT_TOKENS + steps[0]
    for layer, (ours, theirs) in enumerate(zip(*told["cache"], strict=True)):
        for name, mine, other in zip(("keys", "values"), ours, theirs, strict=True):
            assert torch.equal(mine, other), f"{name} of layer {layer} differ between the rows"
            wanted = getattr(expected[0].cache, name)[layer][0, :, :cached]
            found = figures(mine, wanted)
            logger.info("{} of layer {}: {}", name, layer, found)
            assert found["pcc"] >= LEAST_PCC


def test_the_generator_chooses_on_the_chips_and_counts(told, model, prompt):
    """A short prompt: every step is bypassed, and counted so."""
    found = told["generated"]
    wanted = reference_steps(model, prompt[:SHORT_PROMPT], 2, ExactAttention(CHUNK_SIZE), CAPACITY)
    assert found["tokens"] == wanted.tokens
    assert found["counts"] == (0, 0, 2)
    for mine, other in zip(*found["caches"], strict=True):
        assert torch.equal(mine, other) and bool(mine.any()), "both rows prefill, and cache every token"


def test_no_token_is_emitted_after_an_exchange_that_failed(told):
    """The failure of the second chip is told by its tokens alone; its state says why."""
    well, failed = told["guarded"]
    assert well == ([7, 7], [[7]])
    assert failed[0] == [7, FAILED]
    assert failed[1] == ("attention: chip (1, 0) gave up in call 0: the peer did not acknowledge the data")
