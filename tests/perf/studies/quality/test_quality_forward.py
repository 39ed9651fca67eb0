# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Texts under a policy: the same decisions and losses as token by token, and as by a path that shares no code."""

from __future__ import annotations

import pytest
import torch

from models.llama31_8b.checkpoint.load import LoadedModel, load_model, load_state_dict, resolve_source
from models.llama31_8b.reference.alspec.policies import ALSpecAttention, SinkAttention
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from perf.studies.quality.forward import text_pass
from perf.studies.quality.texts import Texts
from tests.support.attention_cases import random_tokens, tiny_config
from tests.support.plain_llama import plain_run


@pytest.fixture(scope="module")
def tiny() -> ReferenceLlama:
    return ReferenceLlama.random(tiny_config(), seed=4)


@pytest.mark.parametrize("chunk,alignment", [(32, 32), (16, 1)])
def test_a_text_at_once_decides_as_token_by_token(tiny, chunk: int, alignment: int) -> None:
    ids = random_tokens(200, seed=9)
    whole = text_pass(tiny, ids, ALSpecAttention(0.6, chunk, alignment))
    policy, cache = ALSpecAttention(0.6, chunk, alignment), tiny.new_cache(1, len(ids))
    logits = torch.cat([tiny.forward(torch.tensor([[token]]), cache, policy=policy)[0] for token in ids]).log_softmax(
        -1
    )
    steps = policy.statistics.steps
    assert torch.equal(torch.cat([step.accepted[:, 0] for step in steps], dim=1), whole.accepted)
    assert torch.equal(torch.cat([step.verified[0] for step in steps]), whole.verified)
    assert whole.verified.tolist() == [count >= 2 * chunk for count in range(1, len(ids) + 1)]
    assert 0.05 < whole.hit_rate() < 0.95, "both outcomes must occur"
    losses = -logits[range(len(ids) - 1), ids[1:]]
    torch.testing.assert_close(whole.losses, losses, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model()


@pytest.fixture(scope="module")
def weights(loaded) -> dict[str, torch.Tensor]:
    """In double precision, as the independent path computes."""
    state = load_state_dict(resolve_source()[0], loaded.config)
    return {name: tensor.double() for name, tensor in state.items()}


@pytest.mark.model
@pytest.mark.parametrize("threshold,alignment", [(0.10, 32), (0.25, 1)])
def test_decisions_and_losses_of_an_independent_path(loaded, weights, threshold: float, alignment: int) -> None:
    ids = Texts().book_ids(loaded.tokenizer)[300:400]
    ours = text_pass(loaded.model, ids, ALSpecAttention(threshold, GuessRange(32, 32, alignment)))
    plain = plain_run(weights, loaded.config.to_hf_dict(), ids, threshold, 32, alignment)
    assert torch.equal(ours.accepted, plain.accepted), "a decision differs"
    assert 0.1 < ours.hit_rate() < 0.99, "both outcomes must occur"
    torch.testing.assert_close(ours.losses.double(), plain.losses, rtol=1e-4, atol=1e-4)


def test_a_comparison_with_itself_finds_no_difference(tiny) -> None:
    ids = random_tokens(150, seed=3)
    exact = text_pass(tiny, ids, keep_scores=True)
    again = text_pass(tiny, ids, SinkAttention(128), exact.scores)  # 128 first and last keys: all of them
    assert float(again.divergence.abs().max()) < 1e-5 and torch.equal(again.choices, again.exact_choices)
    assert exact.hit_rate() is None and again.accepted is None


def test_it_continues_behind_a_cache(tiny) -> None:
    ids = random_tokens(120, seed=5)
    cache = tiny.new_cache(1, len(ids))
    tiny.prefill([ids[:50]], cache)
    behind = text_pass(tiny, ids[50:], cache=cache)
    torch.testing.assert_close(behind.losses, text_pass(tiny, ids).losses[50:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count,message", [(1, "at least 2 tokens.*got 1"), (300, "300 tokens is beyond.*256")])
def test_texts_of_a_wrong_length_are_refused(tiny, count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        text_pass(tiny, random_tokens(count))
    with pytest.raises(ValueError, match="scores of 3 tokens for a text of 9"):
        text_pass(tiny, random_tokens(9), exact_scores=torch.zeros(3, 32))
