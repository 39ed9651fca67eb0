# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Where nodes of trees stand, and what generators of trees refuse before any work; no device."""

from types import SimpleNamespace

import pytest

from models.llama31_8b.config import preset
from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.spec_decode.draft_settings import DraftShape

CONFIG = preset("llama-3.2-1b")


@pytest.fixture(autouse=True)
def host(monkeypatch):
    pytest.importorskip("ttnn")
    monkeypatch.setenv("TT_METAL_SLOW_DISPATCH_MODE", "1")


def llama(users: int = 1, capacity: int = 256, config=CONFIG, refuse: str | None = None, parallel: int | None = None):
    """A TtLlama as far as checks look at it; parallel: layers that it drafts with at once."""

    def check_trees():
        if refuse is not None:
            raise ValueError(refuse)

    attention = SimpleNamespace(check_trees=check_trees)
    groups = None if parallel is None else SimpleNamespace(assignment=SimpleNamespace(size=parallel))
    return SimpleNamespace(users=users, capacity=capacity, config=config, attention=attention, mesh=None, groups=groups)


def engine(model):
    """What a drafter's checks look at."""
    return SimpleNamespace(model=model, config=model.config)


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


def test_a_request_is_checked_before_its_drafter_starts():
    """A draft model's start caches the prompts: work that a wrong prompt must not cause."""
    from models.llama31_8b.tt.generator import Generator

    generator = Generator(llama(), DraftShape(3))
    started = []
    generator.drafter.prefill = lambda *told: started.append(told)
    for prompts, words in (
        ([[]], "empty"),
        ([[1], [2]], "2 prompts for a model of 1"),
        ([[10**6]], "1000000"),
    ):
        with pytest.raises(ValueError, match=words):
            generator.generate(prompts, max_new_tokens=4)
    assert started == []


def test_what_a_generator_of_trees_does_not_sample():
    from models.llama31_8b.tt.generator import Generator

    generator = Generator(llama(), DraftShape(3))
    for params in (SamplingParams(1.0, top_k=5), SamplingParams(1.0, top_p=0.5)):
        with pytest.raises(ValueError, match=f"top_k {params.top_k} and top_p {params.top_p} are for decoding"):
            generator.generate([[1, 2]], max_new_tokens=4, sampling=params)


@pytest.mark.parametrize(
    "draft, shape, words",
    [
        (llama(), DraftShape(5, 4, grown=True), "trees of a fixed shape, none grown"),
        (llama(parallel=2), DraftShape(3, 2), "exact passes alone: 2 layers in parallel"),
        (llama(), DraftShape(1, 33, budget=64), "rank 32 candidates per node, .* has 33"),
        (llama(config=preset("smollm2-135m")), DraftShape(3), "49152 token ids and the target .* has 128256"),
        (llama(capacity=128), DraftShape(3), "1 users of 128 positions, the target 1 of 256"),
        (llama(users=2), DraftShape(3), "2 users of 256 positions, the target 1"),
        (llama(refuse="guesses only"), DraftShape(3), "guesses only"),
        (llama(parallel=4), DraftShape(1), "exact passes alone: 4 layers in parallel"),
    ],
)
def test_what_a_draft_model_does_not_draft(monkeypatch, draft, shape, words):
    from models.llama31_8b.tt.spec_decode import drafters

    monkeypatch.setattr(drafters, "Sampler", lambda *_: None)
    draft.mesh_shape = None
    with pytest.raises(ValueError, match=words):
        drafters.ModelDrafter(draft).check(shape, engine(llama()))


@pytest.mark.parametrize(
    "target, window, words",
    [
        (llama(), 48, "window must be a multiple of 32 up to the cache's capacity of 256, got 48"),
        (llama(), 288, "window must be .* got 288"),
        (llama(users=9), 64, "1 to 8 users draft for themselves, got 9"),
    ],
)
def test_what_no_model_drafts_for_itself(target, window, words):
    from models.llama31_8b.tt.spec_decode.drafters import self_drafter

    with pytest.raises(ValueError, match=words):
        self_drafter(target, window)


def test_a_model_drafts_chains_for_itself_alone(monkeypatch):
    from models.llama31_8b.tt.spec_decode import drafters

    monkeypatch.setattr(drafters, "Sampler", lambda *_: None)
    target = llama()
    target.mesh_shape, target.with_attention = None, lambda attend: target
    drafter = drafters.self_drafter(target, 64)
    drafter.check(DraftShape(3), engine(target))
    with pytest.raises(ValueError, match="drafts for itself, not for another"):
        drafter.check(DraftShape(3), engine(llama()))
    with pytest.raises(ValueError, match="drafts chains, not .*width=2"):
        drafter.check(DraftShape(3, 2), engine(target))
