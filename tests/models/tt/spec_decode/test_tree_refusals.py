# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What generators of trees and their drafters refuse before any work; no device."""

from types import SimpleNamespace
from unittest import mock

import pytest

from models.llama31_8b.config import preset
from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.spec_decode.draft_settings import DraftShape

CONFIG = preset("llama-3.2-1b")


@pytest.fixture(autouse=True)
def drafters(monkeypatch):
    """The module of drafters, whose models have no chips."""
    pytest.importorskip("ttnn")
    from models.llama31_8b.tt.spec_decode import drafters

    monkeypatch.setenv("TT_METAL_SLOW_DISPATCH_MODE", "1")
    monkeypatch.setattr(drafters, "Sampler", lambda *_: None)
    return drafters


def llama(users: int = 1, capacity: int = 256, config=CONFIG, refuse: str | None = None, parallel: int | None = None):
    """A TtLlama as far as checks look at it; parallel: layers that it drafts with at once."""
    made = mock.MagicMock(users=users, capacity=capacity, config=config, mesh=None)
    made.attention.check_trees.side_effect = None if refuse is None else ValueError(refuse)
    made.groups = None if parallel is None else SimpleNamespace(assignment=SimpleNamespace(size=parallel))
    made.with_attention.side_effect = lambda attend: made
    return made


@pytest.mark.parametrize(
    "model, shape, words",
    [
        (llama(refuse="guesses only"), DraftShape(3), "guesses only"),
        (llama(), DraftShape(0), "a draft length of 0"),
        (llama(), DraftShape(20, 2, budget=40), "up to 32 nodes.*has 40"),
        (llama(users=9), DraftShape(3), "up to 8 users.*has 9"),
        (llama(capacity=32), DraftShape(31), "32 positions has no room for trees of 32 nodes"),
        (llama(), DraftShape(5, 4, grown=True), "no confidence to grow a tree by"),
    ],
)
def test_what_no_step_over_trees_does(model, shape, words):
    from models.llama31_8b.tt.generator import Generator

    with pytest.raises(ValueError, match=words):
        Generator(model, shape)


@pytest.mark.parametrize(
    "prompts, sampling, words",
    [
        ([[]], SamplingParams(), "empty"),
        ([[1], [2]], SamplingParams(), "2 prompts for a model of 1"),
        ([[10**6]], SamplingParams(), "1000000"),
        ([[1, 2]], SamplingParams(1.0, top_k=5), "top_k 5 and top_p 1.0 are for decoding"),
        ([[1, 2]], SamplingParams(1.0, top_p=0.5), "top_k 0 and top_p 0.5 are for decoding"),
    ],
)
def test_a_request_is_checked_before_the_model_works(prompts, sampling, words):
    """A draft model's start caches the prompts, for one."""
    from models.llama31_8b.tt.generator import Generator

    model = llama()
    with pytest.raises(ValueError, match=words):
        Generator(model, DraftShape(3)).generate(prompts, max_new_tokens=4, sampling=sampling)
    assert not model.prefill.called and not model.decode.called


@pytest.mark.parametrize(
    "draft, shape, words",
    [
        (llama(), DraftShape(5, 4, grown=True), "trees of a fixed shape, none grown"),
        (llama(parallel=2), DraftShape(3, 2), "exact passes alone: 2 layers in parallel"),
        (llama(), DraftShape(1, 33, budget=64), "rank 32 candidates per node, .* has 33"),
        (llama(config=preset("smollm2-135m")), DraftShape(3), "49152 token ids and the target .* has 128256"),
        (llama(capacity=128), DraftShape(3), "1 users of 128 positions, the target 1 of 256"),
        (llama(refuse="guesses only"), DraftShape(3), "guesses only"),
    ],
)
def test_what_a_draft_model_does_not_draft(drafters, draft, shape, words):
    target = llama()
    with pytest.raises(ValueError, match=words):
        drafters.ModelDrafter(draft).check(shape, mock.Mock(model=target, config=target.config))


@pytest.mark.parametrize(
    "users, window, shape, own, words",
    [
        (1, 48, DraftShape(3), True, "window must be a multiple of 32 up to the cache's capacity of 256, got 48"),
        (9, 64, DraftShape(3), True, "1 to 8 users draft for themselves, got 9"),
        (1, 64, DraftShape(3), False, "drafts for itself, not for another"),
        (1, 64, DraftShape(3, 2), True, "drafts chains, not .*width=2"),
    ],
)
def test_what_no_model_drafts_for_itself(drafters, users, window, shape, own, words):
    target = llama(users)
    with pytest.raises(ValueError, match=words):
        drafter = drafters.self_drafter(target, window)
        drafter.check(shape, mock.Mock(model=target if own else llama(), config=CONFIG))
