# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Texts under a policy: the same decisions and losses as token by token, as by a path that shares no code, and in
larger blocks, as on a GPU."""

import pytest
import torch

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.alspec.policies import ALSpecAttention, SinkAttention, StaticAttention
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from perf.studies.quality import forward
from perf.studies.quality.forward import text_pass
from perf.studies.quality.predictors import PredictedGuess, Predictor
from tests.support.attention_cases import random_tokens, tiny_config

CONFIG = tiny_config(max_position_embeddings=1024)
BUDGET = Predictor.parse("own decay=0.5 budget=0.6")
POLICIES = {
    "alspec": lambda: ALSpecAttention(0.6, 32),
    "alignment 1": lambda: ALSpecAttention(0.6, GuessRange.both_ends(48, 1)),
    "short tail": lambda: ALSpecAttention(0.6, GuessRange(32, 64, 32)),
    "sink": lambda: SinkAttention(64),
    "static": lambda: StaticAttention(32, [0, 2]),
    "a budget": lambda: PredictedGuess(0.3, BUDGET.guess_range(64), BUDGET),
    "exact in one softmax": lambda: None,
}


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return random_state_dict(CONFIG, seed=4)


@pytest.fixture(scope="module")
def tiny(weights) -> ReferenceLlama:
    return ReferenceLlama.from_state_dict(CONFIG, weights)


def test_a_comparison_with_itself_finds_no_difference(tiny) -> None:
    ids = random_tokens(150, seed=3)
    exact = text_pass(tiny, ids, keep_scores=True)
    again = text_pass(tiny, ids, SinkAttention(128), exact.scores)  # 128 first and last keys: all of them
    assert float(again.divergence.abs().max()) < 1e-5 and torch.equal(again.choices, again.exact_choices)
    assert exact.hit_rate() is None and again.accepted is None


def test_it_continues_after_a_cache(tiny) -> None:
    ids = random_tokens(120, seed=5)
    cache = tiny.new_cache(1, len(ids))
    tiny.prefill([ids[:50]], cache)
    after = text_pass(tiny, ids[50:], cache=cache)
    torch.testing.assert_close(after.losses, text_pass(tiny, ids).losses[50:], rtol=1e-4, atol=1e-4)


def test_texts_of_a_wrong_length_are_refused(tiny) -> None:
    with pytest.raises(ValueError, match="1100 exceeds the context of tiny: 1024 tokens"):
        text_pass(tiny, random_tokens(1100))
    with pytest.raises(ValueError, match="scores of 3 tokens for a text of 9"):
        text_pass(tiny, random_tokens(9), exact_scores=torch.zeros(3, 32))


@pytest.mark.parametrize("name", POLICIES)
def test_larger_blocks_change_nothing(name: str, tiny, monkeypatch) -> None:
    """As on a GPU, whose blocks are as many tokens as have one mask."""
    ids = random_tokens(700, seed=9)
    blocks = text_pass(tiny, ids, POLICIES[name](), keep_scores=True)
    monkeypatch.setattr(forward, "BLOCK", forward.QUERY_BLOCK)
    whole = text_pass(tiny, ids, POLICIES[name](), blocks.scores)
    torch.testing.assert_close(whole.losses, blocks.losses, rtol=1e-4, atol=1e-4)
    assert float(whole.divergence.abs().max()) < 1e-4
    if whole.accepted is not None:
        assert torch.equal(whole.accepted, blocks.accepted)
        assert 0.05 < blocks.hit_rate() < 0.95, "both outcomes must occur"
