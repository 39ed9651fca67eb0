# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Accuracy on word problems (GSM8K) and reference answers (Spec-Bench), by likelihood and by generation.

The whole text is decode steps under the policy, the prompt too: the harsher reading of the ALSpec paper's section 5.1.
Sets:
- gsm8k choice: worked examples, a problem and its worked solution; of four numbers the likeliest must be the right one.
- gsm8k short: the same; at each place of the number the greedy choice must be its token.
- gsm8k solution: the loss of the worked solution (`right`: the share of its tokens that are the greedy choice).
- gsm8k written: the model writes a solution after the examples; the number after #### must be right.
- spec_bench: the same as solution, for the reference answer to a question of each category in turn.
"""

from __future__ import annotations

import os.path
import random
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest

import torch

from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.kv_cache import KVCache

from .bootstrap import interval
from .forward import read, text_pass
from .study import Cell, Study

KEY = ("model", "text", "chunk_size", "tail_alignment", "predictor", "threshold", "set", "question")
VALUES = ("right", "loss", "tokens", "seconds")
SHOTS = 4
OPTIONS = 4
_NUMBER = re.compile(r"####\s*(-?[\d,.]+)")
# What is written after the answer's line is another problem.
_LINE_AFTER = re.compile(r"####.*\n")
_CALCULATION = re.compile(r"<<.*?>>")


def final_number(text: str) -> str | None:
    """Return the number after ####, without commas; None when there is none."""
    found = _NUMBER.search(text)
    return found[1].replace(",", "").rstrip(".") if found else None


def problem_text(problem: dict[str, str]) -> str:
    return f"Question: {problem['question']}\nAnswer:"


def solution_text(problem: dict[str, str]) -> str:
    """Return the worked solution without GSM8K's calculator notes, '#### number' its last line."""
    return " " + _CALCULATION.sub("", problem["answer"])


def options(problem: dict[str, str], others: Sequence[dict[str, str]], seed: int) -> list[str]:
    """Return the right number first, then OPTIONS - 1 different ones drawn from other problems' answers.

    Raises ValueError when the others have too few different numbers.
    """
    right = str(final_number(problem["answer"]))
    pool = sorted({str(final_number(other["answer"])) for other in others} - {right})
    if len(pool) < OPTIONS - 1:
        raise ValueError(f"{len(pool)} other numbers for {OPTIONS - 1} wrong options")
    return [right, *random.Random(f"{seed} {problem['question']}").sample(pool, OPTIONS - 1)]


def reference_text(question: dict) -> str | None:
    """Return the reference answer to the first turn; None when there is none."""
    found = question.get("reference")
    found = found[0] if isinstance(found, list) and found else found
    if isinstance(found, list):  # rag: several accepted answers
        found = found[0] if found else None
    return str(found) if found else None


def by_category(questions: Sequence[dict], count: int) -> list[dict]:
    """Return the first `count` questions with a reference, one of each category in turn."""
    groups: dict[str, list[dict]] = {}
    for question in questions:
        if reference_text(question):
            groups.setdefault(question["category"], []).append(question)
    turns = (question for turn in zip_longest(*groups.values()) for question in turn if question is not None)
    return [question for question, _ in zip(turns, range(count))]


class Asked:
    """Texts after one prefix under one policy; the prefix is read once, and so is what follows texts share."""

    def __init__(self, study: Study, prefix: str, room: int, chunk_size: int, threshold: float) -> None:
        self.model, self.tokenizer = study.loaded.model, study.loaded.tokenizer
        self.policy = ALSpecAttention(threshold, study.settings.guess_range(chunk_size))
        ids = self.tokenizer.encode(prefix)
        self.cache: KVCache = self.model.new_cache(1, len(ids) + room)
        read(self.model, ids, self.policy, self.cache)
        self.prefix = len(ids)
        self._after: list[int] = []  # what the cache holds after the prefix

    def score(self, before: str, answers: Sequence[str]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return for each answer (losses, greedy choices that agree) of its tokens after prefix and `before`: [tokens]
        both."""
        *head, last = self.tokenizer.encode(before, add_bos=False)
        found = []
        for answer in answers:
            tail = self.tokenizer.encode(answer, add_bos=False)
            self._read(head)
            result = text_pass(self.model, [last, *tail], self.policy, cache=self.cache)
            self._after = [*head, last, *tail]
            found.append((result.losses.double(), result.choices[:-1] == torch.tensor(tail)))
        return found

    def write(self, before: str, new_tokens: int) -> str:
        """Return the greedy text after prefix and `before`."""
        *head, last = self.tokenizer.encode(before, add_bos=False)
        self._read(head)
        made: list[int] = []
        while len(made) < new_tokens and last not in self.tokenizer.eos_token_ids:
            logits = self.model.forward(torch.tensor([[last]]), self.cache, policy=self.policy)
            last = int(logits[0, -1].argmax())
            made.append(last)
            if _LINE_AFTER.search(self.tokenizer.decode(made)):
                break
        return self.tokenizer.decode(made)

    def _read(self, ids: list[int]) -> None:
        """Bring the cache to prefix and `ids`; what it holds of them already is not read again."""
        same = len(os.path.commonprefix([self._after, ids]))
        self.cache.truncate(self.prefix + same)
        if same < len(ids):
            read(self.model, ids[same:], self.policy, self.cache)
        self._after = ids


def cells(study: Study) -> Iterator[Cell]:
    """Yield a cell per chunk size and threshold with rows for all word problems, then one with all of Spec-Bench."""
    for chunk_size in study.settings.chunk_sizes:
        for threshold in study.settings.thresholds:
            for name, measure in (("gsm8k choice", _word_problems), ("spec_bench", _references)):
                key = {
                    "model": study.loaded.config.name,
                    "text": study.texts.name,
                    "chunk_size": chunk_size,
                    "tail_alignment": study.settings.tail,
                    "predictor": study.settings.predictor,
                    "threshold": threshold,
                }
                yield Cell(key, partial(measure, study, chunk_size, threshold), also={"set": name})


def _row(name: str, question: object, right: float, losses: torch.Tensor | None) -> dict[str, object]:
    return {
        "set": name,
        "question": question,
        "right": right,
        "loss": None if losses is None else float(losses.mean()),
        "tokens": 0 if losses is None else len(losses),
    }


def _word_problems(study: Study, chunk_size: int, threshold: float) -> list[dict[str, object]]:
    problems, settings = study.texts.gsm8k(), study.settings
    if len(problems) < SHOTS + settings.questions:
        raise ValueError(f"{len(problems)} problems; {SHOTS} examples and {settings.questions} questions are asked for")
    examples = "".join(f"{problem_text(p)}{solution_text(p)}\n\n" for p in problems[:SHOTS])
    asked = Asked(study, examples, 1024, chunk_size, threshold)
    rows = []
    for number, problem in enumerate(problems[SHOTS : SHOTS + settings.questions], SHOTS):
        before, solution = problem_text(problem), solution_text(problem)
        ((losses, agree),) = asked.score(before, [solution])
        rows.append(_row("gsm8k solution", number, float(agree.double().mean()), losses))
        numbers = [f" {option}" for option in options(problem, problems, settings.seed)]
        worked = before + solution[: solution.rindex("####") + 4]
        (losses, agree), *others = asked.score(worked, numbers)
        rows.append(_row("gsm8k short", number, float(agree.all()), losses))
        likeliest = losses.sum() < min(other.sum() for other, _ in others)
        rows.append(_row("gsm8k choice", number, float(likeliest), losses))
        said = asked.write(before, settings.new_tokens)
        written = final_number(said) == final_number(problem["answer"])
        rows.append(_row("gsm8k written", number, float(written), None))
    return rows


def _references(study: Study, chunk_size: int, threshold: float) -> list[dict[str, object]]:
    rows = []
    for question in by_category(study.texts.spec_bench(), study.settings.questions):
        prompt = problem_text({"question": question["turns"][0]})
        asked = Asked(study, prompt, 1024, chunk_size, threshold)
        ((losses, agree),) = asked.score("\n", [str(reference_text(question))])
        rows.append(_row("spec_bench", question["question_id"], float(agree.double().mean()), losses))
    return rows


ACCURACY = ("model", "text", "chunk_size", "tail_alignment", "predictor", "threshold", "set", "questions")
INTERVALS = ("right", "right_low", "right_high", "change", "change_low", "change_high", "loss", "loss_change")


def accuracy(rows: Sequence[dict[str, str]], seed: int) -> list[dict[str, object]]:
    """Return means over the questions of each set by chunk size and threshold, with 95 % bootstrap intervals.

    change: of the share that is right, question by question, from the smallest threshold of the run (0: exact
    attention), on which the intervals of the change and loss_change are paired.
    """
    groups: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in ACCURACY[:-1]), {})[row["question"]] = row
    found = []
    for key, mine in groups.items():
        same = [other for other in groups if other[:5] == key[:5] and other[6] == key[6]]
        base = groups[min(same, key=lambda other: float(other[5]))]
        shared = [question for question in mine if question in base]
        right = [float(row["right"]) for row in mine.values()]
        change = [float(mine[q]["right"]) - float(base[q]["right"]) for q in shared]
        losses = [float(row["loss"]) for row in mine.values() if row["loss"]]
        changes = [float(mine[q]["loss"]) - float(base[q]["loss"]) for q in shared if mine[q]["loss"]]
        (low, high), (change_low, change_high) = (interval(values, seed=seed) for values in (right, change))
        found.append(
            {
                **dict(zip(ACCURACY, (*key, len(mine)))),
                "right": sum(right) / len(right),
                "right_low": low,
                "right_high": high,
                "change": sum(change) / len(change),
                "change_low": change_low,
                "change_high": change_high,
                "loss": sum(losses) / len(losses) if losses else None,
                "loss_change": sum(changes) / len(changes) if changes else None,
            }
        )
    return found
