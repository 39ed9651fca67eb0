# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Hits on a given text, many tokens at a time, against decoding token by token."""

from __future__ import annotations

import pytest
import torch

from models.llama31_8b.config import ContextLengthError
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.hits import measure_hits
from models.llama31_8b.reference.model.model import ReferenceLlama
from tests.support.gguf_files import untied


def test_decisions_are_those_of_decoding_token_by_token():
    model = ReferenceLlama.random(untied(), seed=3)
    ids = torch.randint(0, model.config.vocab_size, (200,), generator=torch.Generator().manual_seed(1)).tolist()
    done: list[int] = []
    found = measure_hits(model, ids, 0.6, 32, done.append)
    policy, cache = ALSpecAttention(0.6, 32), model.new_cache(1, len(ids))
    for token in ids:
        model.forward(torch.tensor([[token]]), cache, policy=policy, logits="none")
    assert found.decisions_per_token() == policy.statistics.decisions_per_token()
    assert found.hits and found.misses and found.bypassed_positions == 63 and done == [128, 200]


@pytest.mark.parametrize(
    "ids, settings, error, words",
    [
        ([], {}, ValueError, "the text has no tokens"),
        ([1] * 1025, {}, ContextLengthError, "cache capacity 1025 exceeds the context"),
        ([1], {"threshold": -1.0}, ValueError, "threshold must be a number >= 0"),
        ([1], {"chunk_size": 33}, ValueError, "chunk_size 33 is not a multiple"),
    ],
)
def test_what_cannot_be_measured_is_refused(ids, settings, error, words):
    with pytest.raises(error, match=words):
        measure_hits(ReferenceLlama.random(untied()), ids, **settings)
