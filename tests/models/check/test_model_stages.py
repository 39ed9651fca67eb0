# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What stages with a model expect is decided: no near ties, hits and misses on both ranks, links of every pair."""

from __future__ import annotations

import pytest
import torch

from models.llama31_8b.check import with_model
from models.llama31_8b.check.findings import MAX_ERROR, near
from models.llama31_8b.check.on_chips import neighbours
from models.llama31_8b.check.with_model import filled_cache
from models.llama31_8b.reference.alspec import policies
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.tiny import TINY
from runtime_patches.simulated_n150 import clusters

MIN_MARGIN, MIN_GAP = 0.05, 0.1  # bfloat16 moves ratios by 1 % and logits by 0.06


@pytest.fixture(scope="module")
def reference() -> ReferenceLlama:
    return ReferenceLlama.random(TINY)


def gap(logits: torch.Tensor) -> float:
    best = logits.topk(2).values
    return float(best[0] - best[1])


def test_the_pair_has_hits_and_misses_that_are_no_near_ties(reference, monkeypatch):
    """Both ranks send, and each of them has its guess rejected, of the ends, and accepted, with chosen tiles."""
    ratios, accept = [], policies.accept_guess

    def kept(guess, exact, threshold):
        ratios.append(float((guess - exact).norm() / exact.norm()))
        return accept(guess, exact, threshold)

    monkeypatch.setattr(policies, "accept_guess", kept)
    policy = policies.ALSpecAttention(with_model.THRESHOLD, GuessRange.by_budget(with_model.CHUNK_SIZE))
    cache = filled_cache(reference, with_model.CACHED, with_model.CAPACITY)
    tokens, logits = with_model.steps_of_reference(reference, cache, policy)
    assert [ratio < with_model.THRESHOLD for ratio in ratios] == [False, False, True, False, True, True]
    assert min(abs(ratio / with_model.THRESHOLD - 1) for ratio in ratios) > MIN_MARGIN
    assert min(map(gap, logits)) > MIN_GAP and len(set(tokens)) == with_model.STEPS + 1


def test_the_text_of_the_trees_is_no_near_tie_and_their_drafts_are_right_for_so_many_tokens(reference):
    cache = filled_cache(reference, with_model.TREE_CACHED, with_model.TREE_CAPACITY)
    count = sum(with_model.RIGHT) + len(with_model.RIGHT)
    text = with_model.greedy_text(reference, cache, count)
    again = filled_cache(reference, with_model.TREE_CACHED, with_model.TREE_CAPACITY)
    logits = reference.forward(torch.tensor([text[:-1]]), again, logits="all")[0]
    assert min(map(gap, logits)) > MIN_GAP and logits.argmax(-1).tolist() == text[1:]
    assert len(set(text)) > count // 2, "a text that repeats itself would hide wrong positions"
    drafts = [with_model.drafted([7, 8, 9], right) for right in range(3)]
    assert [tokens[2:] for tokens in drafts] == [[9, 10], [8, 10], [8, 9]]
    assert all(tokens[0] == 7 and tokens[1] not in (8, tokens[2]) for tokens in drafts)


def test_another_decision_fails():
    """Layer 0 hits, so rank 1 sends in layer 1 and misses."""
    priorities = [[[0], [1]], [[1], [2]]]  # by rank and layer, of one user
    assert with_model.check_decisions([priorities], [[True, False]]).ok
    assert with_model.check_decisions([priorities], [[True, True]]).ok is False
    assert with_model.check_decisions([priorities[::-1]], [[True, False]]).ok is False


def test_one_wrong_value_fails():
    expected = torch.linspace(-1, 1, 384)
    assert near("logits", expected + 0.01, expected).ok
    wrong = expected.clone()
    for value in (wrong[100] + 2 * MAX_ERROR, torch.tensor(float("nan"))):
        wrong[100] = value
        assert near("logits", wrong, expected).ok is False
    assert near("one", torch.tensor([3.01]), torch.tensor([3.0])).ok
    assert not near("none", torch.zeros(64), expected[:64]).ok


def test_every_pair_of_neighbours_is_a_link():
    assert list(neighbours(2, 1)) == [((0, 0), (1, 0))]
    assert list(neighbours(1, 4)) == [((0, n), (0, n + 1)) for n in range(3)]
    for shape in ((2, 2), (2, 4), (1, 8)):
        chips = [row * shape[1] + column for pair in neighbours(*shape) for row, column in pair]
        joined = {tuple(sorted(pair)) for pair in zip(chips[::2], chips[1::2], strict=True)}
        assert joined == {tuple(sorted((a, b))) for (a, _), (b, _) in clusters.links(shape)}
