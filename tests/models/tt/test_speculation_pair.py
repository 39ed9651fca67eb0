# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Two layers that speculate between two simulated chips, against the reference's ALSpec policy: of a random Llama, and
trained ones of SmolLM2-135M."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from models.llama31_8b.checkpoint import load as weights
from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.checkpoint.tokenizer import Tokenizer
from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.reference.alspec.policies import ExactAttention, SinkAttention
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tiny import TINY
from tests.models.tt.pair_programs import Part, decode_parts
from tests.support.alspec_reference import Recorded, ReferenceSteps, margin, reference_steps
from tests.support.tt_programs import check_close, prompt
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, YIELDED
from tt_kernels.token_guard.op import FAILED

pytestmark = [pytest.mark.sim, pytest.mark.timeout(10000)]
CHUNK_SIZE, CAPACITY = 32, 128
# The first step has 96 cached tokens: a guess reads 32 at the start and, up to 127, those from 64 on.
PROMPT_TOKENS = 95
SAMPLE = Path(weights.__file__).parents[1] / "demo" / "sample_prompt.txt"
STEPS = 12  # of the whole comparison (--run-slow, the tiny model); the short one has those whose outcomes a case names
BYPASSED_AT = 62  # the last position with fewer than two chunks cached
NEAR_BOUND = 0.01


@dataclass(frozen=True)
class PairCase:
    """A model and a prompt whose first decode steps have layers that hit and layers that miss in several patterns, none
    near the bound, and no two best logits close to each other. threshold: of the acceptance. grid: cores of each chip.
    first: outcomes by layer of the first steps."""

    config: LlamaConfig
    state: dict[str, torch.Tensor]
    prompt: list[int]
    threshold: float
    grid: str
    first: list[list[bool]]


def tiny() -> PairCase:
    """Random weights, a random prompt."""
    first = [[True, False], [False, True], [True, True]]
    return PairCase(TINY, random_state_dict(TINY, 0), prompt(PROMPT_TOKENS, 2985), 0.39, "2x2", first)


def smollm2() -> PairCase:
    """Two trained layers of SmolLM2-135M on English text, with those ids of its vocabulary that the sample prompt
    has, and a few more: a head of all 49152 would take the simulator hours."""
    folder, _ = weights.resolve_source(None)
    whole = weights.read_config(folder, name="smollm2")
    state = weights.load_state_dict(folder, whole, layers=2)
    ids = Tokenizer.from_folder(folder, eos_token_ids=()).encode(SAMPLE.read_text(encoding="utf-8"))
    used = set(ids)
    unused = (token for token in range(whole.vocab_size) if token not in used)
    kept = sorted([*used, *(next(unused) for _ in range(-len(used) % 32))])
    number = {token: index for index, token in enumerate(kept)}
    state = {
        name: tensor[kept].clone() if tensor.shape[0] == whole.vocab_size else tensor for name, tensor in state.items()
    }
    config = replace(whole.with_layers(2), vocab_size=len(kept), eos_token_ids=())
    text = [number[token] for token in ids[500 : 500 + PROMPT_TOKENS]]
    first = [[False, True], [False, False], [False, False], [True, True]]
    return PairCase(config, state, text, 0.1031, "4x4", first)


CASES = {"tiny": tiny, "smollm2": smollm2}


@pytest.fixture(scope="module", params=["tiny", pytest.param("smollm2", marks=pytest.mark.slow)])
def case(request) -> PairCase:
    return CASES[request.param]()


@pytest.fixture(scope="module")
def model(case):
    return ReferenceLlama.from_state_dict(case.config, case.state)


@pytest.fixture(scope="module")
def steps(request, case) -> tuple[int, int]:
    """Decode steps with the threshold, and with each of 0 and infinity. A step of trained layers takes minutes."""
    if not request.config.getoption("--run-slow"):
        return len(case.first), 0
    return (len(case.first), 1) if case.config.name == "smollm2" else (STEPS, 2)


@pytest.fixture(scope="module")
def expected(case, model, steps) -> list[ReferenceSteps]:
    """The reference with the threshold, with --run-slow exact and always taking the guess, and bypassed."""
    policies = [(Recorded(case.threshold, CHUNK_SIZE), PROMPT_TOKENS, steps[0])]
    if steps[1]:
        policies += [(policy(CHUNK_SIZE), PROMPT_TOKENS, steps[1]) for policy in (ExactAttention, SinkAttention)]
    policies += [(Recorded(case.threshold, CHUNK_SIZE), BYPASSED_AT, 1)]
    found = [reference_steps(model, case.prompt[:count], steps, policy, CAPACITY) for policy, count, steps in policies]
    assert found[0].accepted[: len(case.first)] == case.first
    assert margin(found[0], case.threshold) > 2 * NEAR_BOUND
    assert found[-1].ratios == [[None, None]]
    return found


@pytest.fixture(scope="module")
def told(sim_mesh, case, expected) -> dict:
    """What the pair did, fed with the reference's tokens. The bypassed step comes last: it writes into the prompt."""
    thresholds = [case.threshold, 0.0, float("inf")][: len(expected) - 1]
    starts = [*[PROMPT_TOKENS] * len(thresholds), BYPASSED_AT]
    parts = []
    for threshold, start, found in zip([*thresholds, case.threshold], starts, expected, strict=True):
        tokens = [[token] for token in found.tokens[:-1]]
        parts.append(Part(threshold, tokens, [[start + step] for step in range(len(tokens))], anew=True))
    worker, cache = sim_mesh((2, 1), case.grid), expected[0].cache
    prefilled = [[layer[0, :, :PROMPT_TOKENS] for layer in part] for part in (cache.keys, cache.values)]
    given = case.config, case.state, prefilled, {"chunk_size": CHUNK_SIZE}, CAPACITY, parts
    return worker.run(decode_parts, *given, timeout=9800)


def test_tokens_are_the_references_and_logits_agree_on_both_rows(told, expected):
    wanted = [pair for run in expected for pair in zip(run.logits[1:], run.tokens[1:], strict=True)]
    for step, (logits, token) in zip(told["steps"], wanted, strict=True):
        assert torch.equal(*step["logits"]), "the rows of the mesh must end a step with the same residual"
        check_close("logits", step["logits"][0][0], logits)
        assert int(step["logits"][0][0].argmax()) == token


def decided(told, step: int) -> list[tuple[int, int]]:
    """Both rows' priorities by layer."""
    return [(one, other) for (one,), (other,) in zip(*told["steps"][step]["priorities"], strict=True)]


def test_decisions_are_the_references(told, case, expected):
    """By step and layer one row says accepted, rejected or bypassed, the other that it received."""
    names = {YIELDED: True, HOLDS_EXACT: False, HOLDS_EXACT_UNVERIFIED: None}
    near = 0
    for step in range(len(expected[0].accepted)):
        sender = 0  # every step starts with priorities [2, 0]
        for layer, ours in enumerate(decided(told, step)):
            assert ours[1 - sender] == HOLDS_GUESS, (step, layer, ours)
            ratio = expected[0].ratios[step][layer]
            wanted = None if ratio is None else expected[0].accepted[step][layer]
            if ratio is not None and abs(ratio / case.threshold - 1) < NEAR_BOUND:
                near += 1
            else:
                assert names[ours[sender]] is wanted, (step, layer, ours, ratio)
            if ours[sender] == YIELDED:
                sender = 1 - sender
    assert near == 0, "these weights were chosen so that no ratio is near the bound"


def test_outcomes_count_hits_misses_and_bypassed_positions(told, expected, steps):
    counted, *_, bypassed = told["outcomes"]
    for layer, counts in enumerate(counted.layers):
        hits = sum(row[layer] for row in expected[0].accepted)
        assert (counts.hits, counts.misses, counts.bypassed) == (hits, steps[0] - hits, 0)
        assert counts.hits and counts.misses
    assert sum(counted.sent) == steps[0] * 3 and min(counted.sent) > 0, "two layers and the last exchange"
    assert not counted.failures and counted.ties == 0
    assert [(c.hits, c.misses, c.bypassed) for c in bypassed.layers] == [(0, 0, 1)] * 2
    assert bypassed.bypassed_positions == 1
    assert [ours[0] for ours in decided(told, -1)] == [HOLDS_EXACT_UNVERIFIED] * 2


@pytest.mark.slow
def test_threshold_0_accepts_nothing_and_an_infinite_one_everything(told, steps):
    none, every = (outcome.layers for outcome in told["outcomes"][1:3])
    assert [(c.hits, c.misses, c.bypassed) for c in none] == [(0, steps[1], 0)] * 2
    assert [(c.hits, c.misses, c.bypassed) for c in every] == [(steps[1], 0, 0)] * 2


def test_both_rows_cache_every_token(told, expected, steps):
    cached = PROMPT_TOKENS + steps[0]
    for layer, chips in enumerate(told["caches"][0]):
        for name, *parts in zip(("keys", "values"), *chips, strict=True):
            mine, other = (part[0, :, :cached] for part in parts)
            assert torch.equal(mine, other), f"{name} of layer {layer} differ between the rows"
            wanted = getattr(expected[0].cache, name)[layer][0, :, :cached]
            check_close(f"{name} of layer {layer}", mine, wanted)


def test_no_token_is_emitted_after_an_exchange_that_failed(told):
    """The failure of the second chip is told by its tokens alone; its state says why."""
    well, failed = told["guarded"]
    assert well == ([7, 7], [[7]])
    assert failed[0] == [7, FAILED]
    assert failed[1] == ("attention: chip (1, 0) gave up in call 0: the peer did not acknowledge the data")
