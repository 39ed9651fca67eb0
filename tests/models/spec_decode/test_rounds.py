# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Rounds over texts that end in the middle of one, by an engine whose outcomes are scripted, and whose steps have as
many nodes whatever the drafts are."""

from __future__ import annotations

from itertools import count

import pytest

from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.spec_decode.draft_settings import DraftShape
from models.llama31_8b.spec_decode.loop import Drafter, Drafts, Engine, Generator, Outcome
from models.llama31_8b.spec_decode.tree import TokenTree
from models.llama31_8b.tiny import TINY
from tests.support.tt_tolerances import prompt

LENGTH, CAPACITY, FIRST = 3, 64, 0


class Scripted(Engine):
    """outcomes: the new tokens of each user in each round, by user in text order."""

    config, capacity, spare, flat, warm_up_steps = TINY, CAPACITY, LENGTH + 1, True, 2

    def __init__(self, *outcomes: dict[int, list[int]]) -> None:
        self.outcomes, self.drafted, self.positions = list(outcomes), [], []

    def open(self, texts, positions, draws):
        """Takes all."""

    def kept(self, user, cached):
        return 0

    def prefill(self, texts, starts):
        yield from ((user, FIRST) for user in range(len(texts)))

    def step(self, tokens, trees, positions):
        self.drafted.append(max(len(tree) for tree in trees.values()) - 1)
        self.positions.append(dict(positions))
        return self.outcomes.pop(0)

    def verify(self, step, drafts):
        return {user: Outcome(list(range(1, len(step[user]))), step[user]) for user in drafts.trees}


class Zeros(Drafter):
    """Drafts chains of zeros. seen: by round, what it was given of each user."""

    name = "zeros"

    def __init__(self, step_cost: float = 0.0, min_length: int = 0) -> None:
        self.step_cost, self.min_length = step_cost, min_length
        self.seen, self.ended = [], False

    def draft(self, texts, starts, shape, draws):
        self.seen.append({user: list(text[starts[user] :]) for user, text in texts.items()})
        chain = TokenTree.chain(shape.length + 1)
        return Drafts(dict.fromkeys(texts, chain), {user: [0] * len(chain) for user in texts})

    def end(self):
        self.ended = True


def generated(engine: Scripted, prompts, drafter: Zeros, adaptive: bool = False, **request):
    generator = Generator(engine, drafter, DraftShape(LENGTH), adaptive=adaptive)
    return generator, generator.generate(prompts, **{"max_new_tokens": 20, "eos_token_ids": ()} | request)


def test_a_text_ends_inside_an_accepted_path_and_others_go_on(monkeypatch):
    """The first user ends by the token of the path's middle; what was accepted after it is not text. The second goes
    on alone, and its drafter is told what its own round decided."""
    engine, drafter = Scripted({0: [5, 9, 6, 7], 1: [1, 2]}, {1: [3, 4, 5, 6]}, {1: [9]}), Zeros()
    monkeypatch.setattr("time.perf_counter", count().__next__)
    generator, result = generated(engine, [prompt(7, 1), prompt(5, 2)], drafter, eos_token_ids=(9,))
    assert result.token_ids == [[FIRST, 5, 9], [FIRST, 1, 2, 3, 4, 5, 6, 9]]
    assert result.finish_reason == ["eos", "eos"] and drafter.ended and not engine.outcomes
    assert drafter.seen == [{0: [FIRST], 1: [FIRST]}, {1: [1, 2]}, {1: [3, 4, 5, 6]}]
    assert engine.positions == [{0: 7, 1: 5}, {1: 7}, {1: 11}]
    assert generator.cached_ids(0) == prompt(7, 1) + [FIRST, 5], "after them is what was not taken"
    counts = result.speculation
    assert (counts.num_drafts, counts.num_accepted_tokens, counts.num_target_steps) == (4, 3 + 1 + 3, 4)
    assert counts.num_output_tokens == 2 + 2 + 4 + 1
    assert generator.warm_up_tokens == 2 + 2 + 4 and generator.warm_up_seconds == 2 * 4, "four readings a step"


def test_a_context_that_is_full_ends_a_text_before_a_tree_that_would_not_fit():
    """A cache of 64 positions has 60 for text beside a tree of four nodes; the round that fills it is cut."""
    engine = Scripted({0: [1, 2, 3, 4]}, {0: [5, 6, 7, 8]})
    _, result = generated(engine, [prompt(55, 1)], Zeros())
    assert result.finish_reason == ["context"]
    assert 55 + len(result.token_ids[0]) == CAPACITY - (LENGTH + 1) + 1, "the last token is never cached"
    assert result.token_ids[0] == [FIRST, 1, 2, 3, 4, 5]
    assert max(position for round_ in engine.positions for position in round_.values()) + LENGTH + 1 <= CAPACITY


@pytest.mark.parametrize("least", [0, 1])
def test_drafts_that_do_not_pay_become_shorter(least):
    """Nothing is accepted and a drafted token costs half a step: drafting ends, or is as short as saves anything."""
    engine, drafter = Scripted(*[{0: [token]} for token in range(1, 17)]), Zeros(0.5, least)
    request = {"max_new_tokens": 17, "sampling": SamplingParams(1.0, seed=0)}
    _, result = generated(engine, [prompt(7, 1)], drafter, adaptive=True, **request)
    assert result.token_ids[0][1:] == list(range(1, 17))
    assert engine.drafted[0] > least and engine.drafted == sorted(engine.drafted, reverse=True)
    assert engine.drafted[-4:] == [least] * 3 + [0], "the last token is not drafted for"
    given = [token for seen in drafter.seen for token in seen[0]]
    assert given == result.token_ids[0][: len(given)], "each token is given once, in order"
    assert not least or len(drafter.seen) == 16
