# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of perf.studies.quality by themselves: predictors, needles, questions, intervals and tables."""

from __future__ import annotations

import pytest
import torch

from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from perf.lib.tables import Table
from perf.studies.quality import needle, predictors, questions
from perf.studies.quality.bootstrap import interval
from perf.studies.quality.divergence import first_difference
from perf.studies.quality.forward import text_pass
from tests.support.attention_cases import random_tokens, tiny_config


@pytest.fixture(scope="module")
def tiny() -> ReferenceLlama:
    return ReferenceLlama.random(tiny_config(), seed=4)


def test_predictors_read_as_many_keys_as_they_may():
    for predictor in predictors.PREDICTORS.values():
        for keys in (128, 256, 512):
            first, last, tiles = predictors.lengths(predictor, keys)
            assert first >= predictors.TILE and tiles >= 0 and first + last + tiles * predictors.TILE == keys
            cached, slots = torch.tensor([keys, 640, 1000]), 1000
            ranking = {name: torch.rand(2, 3, 32) for name in ("norm", "-norm", "mass", "oracle")}
            read = predictors._read(predictor, keys, cached, ranking, slots)
            visible = torch.arange(slots) < cached[:, None]
            count = (read & visible).sum(-1)
            hidden = -cached % predictors.TILE  # of the last tile, after the query
            tile_more = predictors.TILE * (hidden > 0) * predictor.whole_tail
            if predictor.whole_tail:  # at the least length its tail meets the first keys: none twice
                tile_more[0] = 0
            assert bool((count == (keys - hidden + tile_more)).all())


def test_first_and_last_is_the_guess_of_the_reference(tiny):
    from models.llama31_8b.reference.alspec.policies import ALSpecAttention

    ids, cache = random_tokens(200, seed=6), tiny.new_cache(1, 200)
    policy = predictors.ComparedGuesses(cache, (64,))
    text_pass(tiny, ids, policy, cache=cache)
    distances = torch.cat(policy.distances["first + last", 64])
    eligible = ~distances.isnan()
    assert int(eligible.sum()) == 3 * (200 - 63)

    class Exactly(ALSpecAttention):
        """Decides, but goes on with the exact output, as the comparison does."""

        def attend(self, layer, segments):
            super().attend(layer, segments)
            return segments.exact()

    reference = text_pass(tiny, ids, Exactly(0.7, GuessRange(32, 32)))
    hits = int((distances[eligible] < 0.7).sum())
    assert hits == int(reference.accepted[:, reference.verified].sum()) and 0 < hits < int(eligible.sum())


def test_the_last_steps_mass_is_that_of_the_token_before(tiny):
    """The second block's first token ranks by the last token of the first block."""
    ids, cache = random_tokens(200, seed=6), tiny.new_cache(1, 200)
    whole = predictors.ComparedGuesses(cache, (96,))
    text_pass(tiny, ids, whole, cache=cache)
    cache = tiny.new_cache(1, 200)
    single = predictors.ComparedGuesses(cache, (96,))
    for start in range(0, 200, 50):  # other blocks, the same ranking
        tiny.forward(torch.tensor([ids[start : start + 50]]), cache, policy=single)

    def by_layer(policy, block):
        parts = policy.distances["last step's mass", 96]
        return torch.cat([torch.cat(parts[layer::3]) for layer in range(3)])

    torch.testing.assert_close(by_layer(whole, 128), by_layer(single, 50), equal_nan=True, rtol=1e-4, atol=1e-5)


def test_needles_are_all_in_the_haystack_at_places_of_their_own():
    inserts = [[1000 + n] * 5 for n in range(6)]
    ids = needle.haystack(list(range(400)), inserts, seed=3)
    assert len(ids) == 400
    starts = [ids.index(insert[0]) for insert in inserts]
    assert all(ids[s : s + 5] == insert for s, insert in zip(starts, inserts))
    assert [token for token in ids if token < 1000] == list(range(370))
    assert needle.haystack(list(range(400)), inserts, seed=4) != ids
    with pytest.raises(ValueError, match="needles of 30 tokens leave too little of a text of 50"):
        needle.haystack(list(range(50)), inserts, seed=0)


def test_hashes_are_md5_and_drawn_by_the_seed():
    a, b = needle.needles(0, 7), needle.needles(1, 7)
    assert len(a) == 10 and a[:3] == b[:3] and all(x != y for x, y in zip(a[3:], b[3:]))
    assert all(len(answer) == 33 and int(answer, 16) >= 0 for _, answer in a[3:])


def test_first_difference():
    text = torch.tensor([4, 5, 6])
    assert first_difference(text, text) is None
    assert first_difference(torch.tensor([4, 9, 9]), text) == 1


@pytest.mark.parametrize(
    "text,number", [("#### 1,234", "1234"), ("so\n#### -5.\n", "-5"), ("five", None), ("#### none", None)]
)
def test_final_numbers(text, number):
    assert questions.final_number(text) == number


def test_options_are_four_different_numbers_and_too_few_are_refused():
    problems = [{"question": str(n), "answer": f"a\n#### {n}"} for n in range(9)]
    drawn = questions.options(problems[3], problems, seed=0)
    assert drawn[0] == "3" and len(set(drawn)) == 4
    with pytest.raises(ValueError, match="1 other numbers for 3 wrong options"):
        questions.options(problems[3], problems[3:5], seed=0)


def test_categories_take_turns_and_need_a_reference():
    asked = [
        {"question_id": n, "category": c, "reference": r}
        for n, c, r in ((1, "a", ["x"]), (2, "a", ["x"]), (3, "b", []), (4, "b", "y"), (5, "c", [["z", "w"]]))
    ]
    assert [q["question_id"] for q in questions.by_category(asked, 9)] == [1, 4, 5, 2]
    assert questions.reference_text(asked[4]) == "z"


def test_accuracy_is_compared_question_by_question():
    head = dict(model="m", text="t", chunk_size="64", tail_alignment="32", predictor="ends", set="s", tokens="3")
    rows = [
        dict(head, threshold=threshold, question=str(n), right=str(right), loss=loss)
        for threshold, answers, loss in (
            ("0.1", (1, 0, 0), "2.5"),
            ("0", (1, 1, 0), "2"),
            ("inf", (0, 0, 0), ""),
        )
        for n, right in enumerate(answers)
    ]
    some, exact, sink = questions.accuracy(rows, seed=0)
    assert exact["right"] == pytest.approx(2 / 3) and exact["change"] == 0 == exact["change_high"]
    assert some["change"] == pytest.approx(-1 / 3) and some["change_low"] == -1 and some["change_high"] == 0
    assert some["loss_change"] == 0.5 and sink["loss"] is None and sink["right_high"] == 0


def test_the_interval_covers_the_mean_and_knows_certainty():
    low, high = interval([0.0, 1.0] * 50)
    assert 0.38 < low < 0.42 and 0.58 < high < 0.62
    assert interval([2.0, 2.0]) == (2.0, 2.0)
    with pytest.raises(ValueError, match="no values"):
        interval([])
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 1"):
        interval([1.0], level=1)


def test_a_table_continues_behind_a_torn_row(tmp_path):
    path = tmp_path / "a" / "t.csv"
    table = Table(path, ("x", "y"), ("value",))
    table.append([{"x": 1, "y": 0.1, "value": 1 / 3}, {"x": 1, "y": 0.2, "value": None}])
    with path.open("a") as file:
        file.write("2,0.1,0.4")
    again = Table(path, ("x", "y"), ("value",))
    assert [row["value"] for row in again.rows()] == ["0.333333", ""]
    assert again.has({"x": 1}) and again.has({"x": 1, "y": 0.2}) and not again.has({"x": 2})
    with pytest.raises(ValueError, match="takes the columns x, y, value, got x"):
        again.append([{"x": 3}])
    with pytest.raises(ValueError, match="has the columns x, y, value; this version writes x, z"):
        Table(path, ("x",), ("z",))
