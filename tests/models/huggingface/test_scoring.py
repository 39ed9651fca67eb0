# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Whole texts in one forward decide as step by step, and no tensor of T x T is made."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import models.llama31_8b.huggingface as alspec
from models.llama31_8b.huggingface import scoring
from models.llama31_8b.reference.model.step import GuessRange
from tests.models.huggingface.tiny_transformers import DECODERS, THRESHOLD, decoded, texts, tiny_decoder

PREDICTORS = {
    "whole tail": GuessRange.both_ends(64),
    "alignment 1": GuessRange.both_ends(48, 1),
    "short tail": GuessRange(32, 32, 32),
    "unequal ends": GuessRange(16, 80, 16, whole_tail=True),
    "alignment 48": GuessRange(48, 48, 48, whole_tail=True),
}


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("threshold, budget", [(THRESHOLD, None), (0.2, 0.7)], ids=["ends", "budget"])
def test_a_text_at_once_decides_as_step_by_step(kind: str, threshold: float, budget: float | None) -> None:
    model, ids = tiny_decoder(kind), texts(1, 300)[0]
    speculation = alspec.AttentionSpeculation(threshold, 32, budget=budget, keep_decisions=True).attach(model)
    whole = alspec.score(model, ids)
    assert speculation.hit_rate is None, "scoring counts for itself"
    logits = decoded(model, ids[None], 1)[0]  # a first token alone is a step like the others
    accepted, verified = speculation.decisions()
    assert torch.equal(accepted[:, 0], whole.accepted) and torch.equal(verified[0], whole.verified)
    assert 0.02 < whole.hit_rate < 0.98, "both outcomes must occur"
    losses = torch.nn.functional.cross_entropy(logits[:-1], ids[2:], reduction="none")
    torch.testing.assert_close(whole.losses[1:], losses, rtol=1e-3, atol=1e-3)
    assert torch.equal(whole.choices[1:], logits.argmax(-1))


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("name", PREDICTORS)
@pytest.mark.parametrize("tokens", [50, 300, 1111])
def test_guesses_of_all_positions(name: str, tokens: int, monkeypatch) -> None:
    """By windows and by flex_attention's tiles (not compiled here), against a dense softmax over the keys."""
    monkeypatch.setattr(scoring, "QUERY_BLOCK", 144)
    guess_range, generator = PREDICTORS[name], torch.Generator().manual_seed(4)
    query = torch.randn(2, 4, tokens, 8, generator=generator)
    key, value = (torch.randn(2, 2, tokens, 8, generator=generator) for _ in range(2))
    position = torch.arange(tokens)
    reads = (position[None] <= position[:, None]) & (
        (position[None] < guess_range.first) | (position[None] >= guess_range.tail_start(position[:, None] + 1))
    )
    scores = query.unflatten(1, (2, 2)) @ key[:, :, None].mT / math.sqrt(8)
    weights = scores.masked_fill(~reads, -math.inf).softmax(-1)
    expected = (weights @ value[:, :, None]).flatten(1, 2).transpose(1, 2)
    for guess in (scoring.text_guess, scoring.guess_by_tiles):
        found = guess(query, key, value, guess_range, None)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


class Largest(TorchDispatchMode):
    """The most elements of a tensor that an operation made."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return made


@pytest.mark.parametrize("budget", [None, 0.9])
def test_no_tensor_grows_with_the_square_of_the_text(budget: float | None) -> None:
    model = tiny_decoder(max_position_embeddings=4096)
    alspec.AttentionSpeculation(THRESHOLD, 32, budget=budget).attach(model)
    largest = []
    for tokens in (1024, 4096):
        with Largest() as mode:
            alspec.score(model, texts(1, tokens)[0])
        largest.append(mode.elements)
    assert largest[1] <= 4 * largest[0] and largest[1] <= 4096 * 4096 // 4


def test_texts_that_cannot_be_scored() -> None:
    model = tiny_decoder()
    with pytest.raises(ValueError, match=r"one text of 2 tokens and more.*\[1\]"):
        alspec.score(model, texts(1, 1)[0])
    scaled = tiny_decoder("cohere")
    alspec.AttentionSpeculation().attach(scaled)
    with pytest.raises(alspec.UnsupportedAttentionError, match="'cohere'.*scales its logits .logit_scale=0.0625"):
        alspec.score(scaled, texts(1, 20)[0])
    speculation = alspec.AttentionSpeculation().attach(model)
    mask = torch.ones((1, 20), dtype=torch.int64)
    mask[0, :3] = 0
    with pytest.raises(alspec.UnsupportedAttentionError, match="without padding"), speculation.scoring():
        model(input_ids=texts(1, 20), attention_mask=mask)
    assert not speculation.scores_texts
