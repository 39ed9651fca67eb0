# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The plain generation loop: batches, endings, streaming, sampling, limits; and hits on a given text."""

import pytest
import torch

from models.llama31_8b.config import ContextLengthError
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.hits import measure_hits
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from tests.support.attention_cases import random_tokens, tiny_config
from tests.support.gguf_files import untied

PROMPTS = [random_tokens(40, seed=1), random_tokens(7, seed=2), random_tokens(90, seed=3)]


def by_full_forwards(model: ReferenceLlama, prompt: list[int], count: int) -> list[int]:
    """Greedy tokens without any cached decoding: the whole text again for every token."""
    text = list(prompt)
    for _ in range(count):
        logits = model.forward(torch.tensor([text]), model.new_cache(1, len(text)))
        text.append(int(logits[0, -1].argmax()))
    return text[len(prompt) :]


def test_a_batch_of_different_prompts_decodes_as_full_forwards_do(model: ReferenceLlama) -> None:
    result = generate(model, PROMPTS, max_new_tokens=20)
    assert result.token_ids == [by_full_forwards(model, prompt, 20) for prompt in PROMPTS]
    assert result.finish_reason == ["length"] * 3
    assert result.prefill_tokens == 137 and result.decode_tokens == 57
    assert result.prefill_tokens_per_second > 0 and result.decode_tokens_per_second > 0
    assert result.statistics is None


def test_the_config_names_the_default_eos(model: ReferenceLlama) -> None:
    token = generate(model, [PROMPTS[0]], max_new_tokens=8).token_ids[0][3]
    ending = ReferenceLlama.random(tiny_config(eos_token_ids=(token,)), seed=2)
    assert generate(ending, [PROMPTS[0]], max_new_tokens=8).finish_reason == ["eos"]
    assert generate(ending, [PROMPTS[0]], max_new_tokens=8, eos_token_ids=()).finish_reason == ["length"]


def test_tokens_stream_in_order_and_a_callback_may_end_a_text(model: ReferenceLlama) -> None:
    streamed: list[list[int]] = [[], [], []]

    def on_token(user: int, token: int) -> bool:
        streamed[user].append(token)
        return user == 1 and len(streamed[user]) == 3

    prefill = []
    count = {"on_prefill": lambda *counts: prefill.append(counts)}
    result = generate(model, PROMPTS, max_new_tokens=6, on_token=on_token, **count)
    assert streamed == result.token_ids
    assert result.finish_reason == ["length", "callback", "length"] and len(result.token_ids[1]) == 3
    assert prefill == [(40, 137), (47, 137), (137, 137)]


def test_a_full_context_ends_the_text(model: ReferenceLlama) -> None:
    result = generate(model, [random_tokens(250), random_tokens(256), random_tokens(5)], max_new_tokens=9)
    assert result.finish_reason == ["context", "context", "length"]
    assert [len(tokens) for tokens in result.token_ids] == [7, 1, 9]
    assert result.token_ids[0] == by_full_forwards(model, random_tokens(250), 7)


def test_speculation_statistics_come_with_the_result(model: ReferenceLlama) -> None:
    policy = ALSpecAttention(0.5, GuessRange.both_ends(16, 4))
    result = generate(model, PROMPTS, max_new_tokens=30, policy=policy)
    assert result.statistics is policy.statistics
    decisions = [result.statistics.decisions_per_token(user) for user in range(3)]
    assert [len(tokens) for tokens in decisions] == [29] * 3
    # User 1 starts with 7 tokens: steps with 8 to 31 cached tokens are bypassed.
    assert [tokens.count(None) for tokens in decisions] == [0, 24, 0]


def test_bad_requests_are_named(model: ReferenceLlama) -> None:
    with pytest.raises(ValueError, match="no prompts"):
        generate(model, [])
    with pytest.raises(ContextLengthError, match="user 0 has 257 tokens; the limit is 256"):
        generate(model, [[1] * 257])
    with pytest.raises(ValueError, match="at least 1, got 0"):
        generate(model, [[1]], max_new_tokens=0)
    with pytest.raises(ValueError, match="got 2.5"):
        generate(model, [[1]], max_new_tokens=2.5)
    with pytest.raises(ValueError, match="the text has no tokens"):
        measure_hits(model, [])


def test_decisions_are_those_of_decoding_token_by_token():
    model = ReferenceLlama.random(untied(), seed=3)
    ids = random_tokens(200, 1, model.config.vocab_size)
    done: list[int] = []
    found = measure_hits(model, ids, 0.6, 32, done.append)
    policy, cache = ALSpecAttention(0.6, 32), model.new_cache(1, len(ids))
    for token in ids:
        model.forward(torch.tensor([[token]]), cache, policy=policy, logits="none")
    assert found.decisions_per_token() == policy.statistics.decisions_per_token()
    assert found.hits and found.misses and found.bypassed_positions == 63 and done == [128, 200]
