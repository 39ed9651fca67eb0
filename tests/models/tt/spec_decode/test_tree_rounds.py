# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The loop of rounds over texts that end in the middle of a round; no device: what chips verify is scripted. Whole
rounds on the simulated chip: test_tree_generator.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.spec_decode.draft_shape import DraftShape
from models.llama31_8b.spec_decode.tree import TokenTree
from models.llama31_8b.tiny import TINY
from tests.support.reference_chips import ReferenceChips, stand_in_for_ttnn
from tests.support.tt_tolerances import prompt

MODEL = ReferenceLlama.random(TINY, seed=3)
LENGTH, CAPACITY = 3, 64


@pytest.fixture(autouse=True)
def host(monkeypatch):
    ttnn = pytest.importorskip("ttnn")
    stand_in_for_ttnn(monkeypatch, ttnn)
    monkeypatch.setattr("models.llama31_8b.tt.spec_decode.tree_generator.TreeStep", lambda *_: None)


class Scripted:
    """A drafter and its rounds: `outcomes` are the new tokens of each user in each round, by user in text order."""

    traced_step = SimpleNamespace(replays=0)
    step_cost = 0.0
    min_length, timed = 0, False
    drafting_seconds = calibration_seconds = 0.0

    def __init__(self, *outcomes: dict[int, list[int]]) -> None:
        self.outcomes, self.seen, self.worth = list(outcomes), [], []

    def check(self, shape, target):
        """Takes all."""

    def start(self, texts, cached):
        self.started = [list(text) for text in texts]

    def draft_loop(self, step, shape, eager):
        return self

    def load(self, undrafted, lengths, generators, worth):
        self.seen.append(({user: list(tokens) for user, tokens in undrafted.items()}, list(lengths)))
        self.worth.append(worth)
        for tokens in undrafted.values():
            tokens.clear()
        return dict.fromkeys(undrafted, TokenTree.chain(LENGTH + 1))

    def __call__(self):
        given = self.outcomes.pop(0)
        rows = [
            SimpleNamespace(tokens=given.get(user, []), path=list(range(1, len(given.get(user, [0])))))
            for user in range(2)
        ]
        return SimpleNamespace(check=lambda: rows)

    def release(self):
        self.released = True


def generated(drafter: Scripted, prompts, users: int = 2, adaptive: bool = False, **request):
    from models.llama31_8b.tt.spec_decode.tree_generator import TreeGenerator

    model = ReferenceChips(MODEL, users, CAPACITY, 32)
    model.decode_attention.check_trees = lambda: None
    generator = TreeGenerator(model, DraftShape(LENGTH), drafter, adaptive=adaptive)
    generator._sampler = lambda *_: None
    options = {"sampling": SamplingParams(0.0), "max_new_tokens": 20} | request
    return generator, generator.generate(prompts, **options)


def test_a_text_ends_inside_an_accepted_path_and_others_go_on():
    """The first user ends by the token of the path's middle; what was accepted behind it is not text. The second goes
    on alone, and its drafter is told what its own round decided."""
    drafter = Scripted({0: [5, 9, 6, 7], 1: [1, 2]}, {1: [3, 4, 5, 6]}, {1: [9]})
    generator, result = generated(drafter, [prompt(7, 1), prompt(5, 2)], eos_token_ids=(9,))
    first = [text[0] for text in result.token_ids]
    assert result.token_ids == [[first[0], 5, 9], [first[1], 1, 2, 3, 4, 5, 6, 9]]
    assert result.finish_reason == ["eos", "eos"] and drafter.released and not drafter.outcomes
    assert drafter.seen == [
        ({0: [first[0]], 1: [first[1]]}, [7, 5]),
        ({1: [1, 2]}, [9, 7]),
        ({1: [3, 4, 5, 6]}, [9, 11]),
    ]
    assert generator.cached_ids(0) == prompt(7, 1) + [first[0], 5], "behind them is what was not taken"
    counts = result.speculation
    assert (counts.num_drafts, counts.num_accepted_tokens, counts.num_target_steps) == (4, 3 + 1 + 3, 4)
    assert counts.num_output_tokens == 2 + 2 + 4 + 1


def test_a_length_and_a_callback_end_texts_in_the_middle_of_a_round():
    drafter = Scripted({0: [1, 2, 3, 4], 1: [5, 6, 7, 8]}, {1: [1, 2]})
    _, result = generated(
        drafter,
        [prompt(7, 1), prompt(5, 2)],
        eos_token_ids=(),
        max_new_tokens=6,
        on_token=lambda user, token: user == 0 and token == 2,
    )
    assert [len(text) for text in result.token_ids] == [3, 6]
    assert result.finish_reason == ["callback", "length"]
    assert drafter.worth == [3, 0], "the last token is not drafted for"


def test_a_context_that_is_full_ends_a_text_before_a_tree_that_would_not_fit():
    """A cache of 64 positions has 60 for text beside a tree of four nodes; the round that fills it is cut."""
    drafter = Scripted({0: [1, 2, 3, 4]}, {0: [5, 6, 7, 8]})
    _, result = generated(drafter, [prompt(55, 1)], users=1, eos_token_ids=())
    assert result.finish_reason == ["context"]
    assert 55 + len(result.token_ids[0]) == CAPACITY - (LENGTH + 1) + 1, "the last token is never cached"
    assert result.token_ids[0][1:] == [1, 2, 3, 4, 5]
    assert max(max(lengths) for _, lengths in drafter.seen) + LENGTH + 1 <= CAPACITY


@pytest.mark.parametrize("least", [0, 1])
def test_drafts_that_do_not_pay_become_shorter(least):
    """Nothing is accepted and a drafted token costs half a step: drafting ends, or is as short as saves anything."""
    drafter = Scripted(*[{0: [token]} for token in range(1, 17)])
    drafter.step_cost, drafter.min_length = 0.5, least
    sampling = SamplingParams(1.0, seed=0)
    _, result = generated(
        drafter,
        [prompt(7, 1)],
        users=1,
        adaptive=True,
        eos_token_ids=(),
        max_new_tokens=17,
        sampling=sampling,
    )
    assert result.token_ids[0][1:] == list(range(1, 17))
    assert drafter.worth[0] > least and drafter.worth == sorted(drafter.worth, reverse=True)
    assert drafter.worth[-4:] == [least] * 3 + [0], "the last token is not drafted for"
