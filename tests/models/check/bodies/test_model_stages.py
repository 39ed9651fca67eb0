# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stages that run a small model or several chips: each passes on simulated chips, and what it expects is decided."""

from __future__ import annotations

import pytest
import torch

from models.llama31_8b.check import runner
from models.llama31_8b.check.bodies import pair, trees
from models.llama31_8b.check.bodies.links import neighbours
from models.llama31_8b.check.bodies.small_model import MAX_ERROR, filled_cache, near
from models.llama31_8b.check.findings import FAIL, PASS
from models.llama31_8b.check.runner import run_stages
from models.llama31_8b.check.stages import STAGES
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tiny import TINY
from runtime_patches.simulated_n150 import clusters
from tests.support.alspec_reference import Recorded

MIN_MARGIN, MIN_GAP = 0.05, 0.1  # bfloat16 moves ratios by 1 % and logits by 0.06


@pytest.fixture(scope="module")
def reference() -> ReferenceLlama:
    return ReferenceLlama.random(TINY)


def gap(logits: torch.Tensor) -> float:
    best = logits.topk(2).values
    return float(best[0] - best[1])


def test_the_pair_has_hits_and_misses_that_are_no_near_ties(reference):
    """Both ranks send, and each of them has its guess accepted and rejected."""
    ratios = []

    class Kept(Recorded):
        def attend(self, layer, segments):
            found = super().attend(layer, segments)
            ratios.append(self.ratios[-1])
            return found

    policy = Kept(pair.THRESHOLD, pair.CHUNK_SIZE)
    cache = filled_cache(reference, pair.CACHED, pair.CAPACITY)
    tokens, logits = pair.steps_of_reference(reference, cache, policy)
    assert [ratio < pair.THRESHOLD for ratio in ratios] == [True, False, False, True]
    assert min(abs(ratio / pair.THRESHOLD - 1) for ratio in ratios) > MIN_MARGIN
    assert min(map(gap, logits)) > MIN_GAP and len(set(tokens)) == pair.STEPS + 1


def test_the_text_of_the_trees_is_no_near_tie(reference):
    cache = filled_cache(reference, trees.CACHED, trees.CAPACITY)
    count = sum(trees.RIGHT) + len(trees.RIGHT)
    text = trees.greedy_text(reference, cache, count)
    again = filled_cache(reference, trees.CACHED, trees.CAPACITY)
    logits = reference.forward(torch.tensor([text[:-1]]), again, logits="all")[0]
    assert min(map(gap, logits)) > MIN_GAP and logits.argmax(-1).tolist() == text[1:]
    assert len(set(text)) > count // 2, "a text that repeats itself would hide wrong positions"


def test_trees_are_right_for_so_many_tokens():
    text = [7, 8, 9]
    drafts = [trees.drafted(text, right) for right in range(3)]
    assert [tokens[2:] for tokens in drafts] == [[9, 10], [8, 10], [8, 9]]
    assert all(tokens[0] == 7 and tokens[1] not in (8, tokens[2]) for tokens in drafts)


def test_another_decision_fails():
    """Layer 0 hits, so rank 1 sends in layer 1 and misses."""
    priorities = [[[0], [1]], [[1], [2]]]  # by rank and layer, of one user
    assert pair.check_decisions([priorities], [[True, False]])[0].ok
    assert pair.check_decisions([priorities], [[True, True]])[0].ok is False
    assert pair.check_decisions([priorities[::-1]], [[True, False]])[0].ok is False


def test_one_wrong_value_fails():
    expected = torch.linspace(-1, 1, 384)
    assert near("logits", expected + 0.01, expected).ok
    wrong = expected.clone()
    wrong[100] += 2 * MAX_ERROR
    assert near("logits", wrong, expected).ok is False
    wrong[100] = float("nan")
    assert near("logits", wrong, expected).ok is False


QUICK = ("tree attention", "verification", "link", "collectives", "layer", "pair", "token trees", "replay")
SLOW = ("sharded layer", "rates", "links of 4", "links of 8", "collectives of 4", "collectives of 8", "soak")


@pytest.mark.sim
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_stage_passes_on_simulated_chips(monkeypatch, name):
    monkeypatch.setattr(runner, "SIM_CHIPS", 8)
    (stage,) = (stage for stage in STAGES if stage.name == name)
    (found,) = run_stages([stage._replace(needs=())], "sim", stage.level)
    assert found.status == PASS, found
    assert any(check.ok for check in found.checks) and all(check.ok is not False for check in found.checks)


FAULTS = {
    "collectives": ("wrong_sum", "sum: expected at most ", "no collectives"),
    "pair": ("every_guess_accepted", "decisions by step, layer and rank: expected ", "--attention exact"),
    "token trees": ("nothing_moved", "text: expected ", "--draft none"),
}


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fails_with_the_way_around_it(name):
    body, why, way = FAULTS[name]
    (stage,) = (stage for stage in STAGES if stage.name == name)
    faulty = stage._replace(body=f"tests.models.check.bodies.faulty_stages:{body}", needs=())
    (found,) = run_stages([faulty], "sim", stage.level)
    assert found.status == FAIL and why in found.why and any(way in text for text in found.advice), found


def test_every_pair_of_neighbours_is_a_link():
    assert list(neighbours(2, 1)) == [((0, 0), (1, 0))]
    assert list(neighbours(1, 4)) == [((0, n), (0, n + 1)) for n in range(3)]
    for shape in ((2, 2), (2, 4), (1, 8)):
        chips = [row * shape[1] + column for pair in neighbours(*shape) for row, column in pair]
        joined = {tuple(sorted(pair)) for pair in zip(chips[::2], chips[1::2], strict=True)}
        assert joined == {tuple(sorted((a, b))) for (a, _), (b, _) in clusters.links(shape)}
