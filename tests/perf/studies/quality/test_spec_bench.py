# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Spec-Bench's questions and answers with token-level speculation, on a tiny model."""

from __future__ import annotations

import json

import pytest

from perf.studies.quality import spec_bench

QUESTIONS = [
    {"question_id": 1, "category": "writing", "turns": ["the and the in 12 " * 5, "and in"]},
    {"question_id": 2, "category": "qa", "turns": ["in the and " * 5], "reference": ["x"]},
    {"question_id": 3, "category": "qa", "turns": ["and the"]},
]


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "question.jsonl"
    path.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    return path


def answers(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_drafts_change_the_steps_and_not_the_text(model, questions, tmp_path, capsys):
    given = ["--questions", str(questions), "--model", model, "--max-new-tokens", "12"]
    plain, drafted = tmp_path / "plain.jsonl", tmp_path / "ngram.jsonl"
    assert spec_bench.main([*given, "--answers", str(plain)]) == 0
    assert spec_bench.main([*given, "--answers", str(drafted), "--draft", "ngram"]) == 0
    assert "3 questions answered" in capsys.readouterr().out
    for a, b, question in zip(answers(plain), answers(drafted), QUESTIONS, strict=True):
        assert (a["question_id"], a["category"]) == (question["question_id"], question["category"])
        (ours,), (theirs,) = a["choices"], b["choices"]
        assert ours["turns"] == theirs["turns"] and len(ours["turns"]) == len(question["turns"])
        assert set(ours) == {"index", "turns", "decoding_steps", "new_tokens", "wall_time", "accept_lengths"}
        for choice in (ours, theirs):
            assert len(choice["accept_lengths"]) == sum(choice["decoding_steps"])
            assert sum(choice["accept_lengths"]) >= sum(choice["new_tokens"]) - len(choice["turns"])
        assert ours["accept_lengths"] == [1] * (sum(ours["new_tokens"]) - len(ours["turns"]))


def test_a_second_run_answers_the_rest(model, questions, tmp_path, capsys):
    out = tmp_path / "a.jsonl"
    given = ["--questions", str(questions), "--answers", str(out), "--model", model, "--max-new-tokens", "2"]
    assert spec_bench.main([*given, "--limit", "1", "--categories", "qa"]) == 0
    assert [line["question_id"] for line in answers(out)] == [2]
    assert spec_bench.main(given) == 0
    assert [line["question_id"] for line in answers(out)] == [2, 1, 3]
    assert "2 questions answered, 1 were there" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line,arguments,why",
    [
        ('{"question_id": 1}', (), "line 1: no question with question_id, category, turns"),
        ("{", (), "line 1: no question"),
        (json.dumps(QUESTIONS[0]), ("--categories", "taste"), "no question of category taste; there are writing"),
        (json.dumps(QUESTIONS[0]), ("--threshold", "-1"), "threshold must be a number >= 0"),
    ],
)
def test_nonsense_is_refused(tmp_path, capsys, line, arguments, why):
    path = tmp_path / "q.jsonl"
    path.write_text(line + "\n")
    assert spec_bench.main(["--questions", str(path), "--answers", str(tmp_path / "a"), *arguments]) == 2
    assert why in capsys.readouterr().err
