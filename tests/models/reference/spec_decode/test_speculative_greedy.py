# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Greedy speculative output is the plain greedy output, for every drafter, shape and fuzzy setting."""

from functools import lru_cache

import pytest
from loguru import logger

from models.llama31_8b.reference.alspec.policies import ALSpecAttention, ExactAttention
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.reference.spec_decode.generate import speculative_generate
from models.llama31_8b.reference.spec_decode.model_drafter import ModelDrafter, SelfDrafter
from models.llama31_8b.reference.spec_decode.ngram_drafter import NGramDrafter
from models.llama31_8b.spec_decode.draft_shape import DraftShape
from tests.support import speculation_models as small

PROMPTS = small.prompts(20, 64)
NEW_TOKENS = 24


def alspec():
    return ALSpecAttention(0.4, GuessRange(32, 32))  # the short tail misses at short texts too


def never_accepting():
    return ALSpecAttention(0.0, GuessRange(32, 32))


@lru_cache
def model(kind: str):
    make = {
        "ordinary": small.target,
        "close": lambda: small.near_ties(1e-4),
        "ties": small.near_ties,
        "draft": lambda: small.resembling(0.12),
    }
    return make[kind]()


def plain(kind: str, policy=ExactAttention) -> list[list[int]]:
    return plain_result(kind, policy).token_ids


@lru_cache
def plain_result(kind: str, policy=ExactAttention):
    return generate(model(kind), PROMPTS, max_new_tokens=NEW_TOKENS, policy=policy(), eos_token_ids=())


CHAIN, TREE, GROWN = DraftShape(4), DraftShape(3, 3, budget=16), DraftShape(3, 3, grown=True, budget=12)
CUSTOM = [[0, 1], [2, 3, 4], [5]]

DRAFTERS = {
    "model-chain": lambda kind: ModelDrafter(model("draft"), CHAIN),
    "model-chain-fuzzy2": lambda kind: ModelDrafter(model("draft"), CHAIN, fuzzy=2),
    "model-chain-fuzzy4": lambda kind: ModelDrafter(model("draft"), CHAIN, fuzzy=4),
    "model-chain-uncalibrated": lambda kind: ModelDrafter(model("draft"), CHAIN, fuzzy=3, calibrate=False),
    "model-tree": lambda kind: ModelDrafter(model("draft"), TREE),
    "model-tree-fuzzy3": lambda kind: ModelDrafter(model("draft"), TREE, fuzzy=3),
    "model-long-tree": lambda kind: ModelDrafter(model("draft"), DraftShape(6, 2, budget=20)),
    "model-grown": lambda kind: ModelDrafter(model("draft"), GROWN),
    "model-grown-custom": lambda kind: ModelDrafter(model("draft"), GROWN, fuzzy=CUSTOM),
    "self-chain": lambda kind: SelfDrafter(model(kind), CHAIN, window=32),
    "self-tree-fuzzy2": lambda kind: SelfDrafter(model(kind), TREE, window=32, fuzzy=2),
    "self-grown": lambda kind: SelfDrafter(model(kind), GROWN, window=32),
    "ngram-chain": lambda kind: NGramDrafter(DraftShape(6), smallest=1),
    "ngram-tree": lambda kind: NGramDrafter(DraftShape(4, 3), smallest=1),
}


def check(kind: str, name: str, policy=ExactAttention, adaptive: bool = False):
    drafter = DRAFTERS[name](kind)
    result = speculative_generate(
        model(kind),
        PROMPTS,
        drafter,
        max_new_tokens=NEW_TOKENS,
        policy=policy(),
        adaptive=adaptive,
        eos_token_ids=(),
    )
    broken = small.same_greedy_text(model(kind), PROMPTS, plain(kind, policy), result.token_ids, policy)
    metrics = result.speculation
    logger.info(
        "{} {}: {} broken ties in {} texts, mean acceptance length {}",
        *(kind, name, broken, len(PROMPTS), metrics.mean_acceptance_length),
    )
    return result, broken


@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_output_is_the_plain_output(name):
    result, broken = check("ordinary", name)
    assert broken == 0
    assert result.speculation.num_drafts > 0 and result.speculation.num_accepted_tokens > 0


@pytest.mark.parametrize("name", ["model-chain-fuzzy2", "self-grown"])
def test_close_logits_are_told_apart(name):
    """Twins 1e-4 apart: one wrong token in 480 would show."""
    _, broken = check("close", name)
    assert broken == 0


@pytest.mark.parametrize("name", ["model-tree", "ngram-chain"])
def test_rounding_ties_differ_only_by_the_tie(name):
    """Twins one rounding error apart: outputs do differ, and every difference is shown to be such a tie."""
    check("ties", name)


@pytest.mark.parametrize("name", ["model-tree-fuzzy3", "self-chain", "ngram-tree"])
def test_composed_with_alspec(name):
    """Threshold 0 gives the text of exact attention. Above it every kept token is counted as its tree was decided."""
    never = check("ordinary", name, never_accepting)[0]
    assert never.token_ids == check("ordinary", name)[0].token_ids
    layers = model("ordinary").config.num_hidden_layers
    drafter = DRAFTERS[name]("ordinary")
    accepting = alspec()
    options = {"max_new_tokens": NEW_TOKENS, "adaptive": False, "eos_token_ids": ()}
    result = speculative_generate(model("ordinary"), PROMPTS, drafter, policy=accepting, **options)
    assert result.speculation.num_accepted_tokens > 0
    for statistics in (never.statistics, result.statistics):
        counted = statistics.hits + statistics.misses + statistics.bypassed
        # The first token of a text comes from prefill, where nothing speculates.
        assert counted == layers * len(PROMPTS) * (NEW_TOKENS - 1)
    assert never.statistics.hits == 0 < min(result.statistics.hits, result.statistics.misses)
    assert 0 < result.statistics.hit_rate_per_step < 1 and 0 < result.statistics.hit_rate_of_roots_alone < 1


@pytest.mark.parametrize("name", ["model-chain", "self-grown", "ngram-tree"])
def test_adaptive_length_changes_no_token(name):
    _, broken = check("ordinary", name, adaptive=True)
    assert broken == 0
