# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The texts that are measured on: a story that comes with the project, or a folder with a book and questions.

The folder (`--data`, else $LLAMA_ALSPEC_TEXTS) holds tale_of_two_cities.txt (Project Gutenberg), gsm8k_test.jsonl (one
object a line with `question` and `answer`) and spec_bench.jsonl (Spec-Bench's question.jsonl).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from models.llama31_8b.checkpoint.tokenizer import Tokenizer

OWN = Path(__file__).with_name("texts")
BOOK, GSM8K, SPEC_BENCH = "tale_of_two_cities.txt", "gsm8k_test.jsonl", "spec_bench.jsonl"
# Project Gutenberg's frame is not part of the book.
_FRAME = ("*** START OF", "*** END OF")


@dataclass
class Texts:
    """The book and the questions of a run. folder: None for the project's own."""

    folder: Path | None = None
    _ids: list[int] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raises FileNotFoundError naming the files the folder lacks."""
        if self.folder is not None:
            missing = [name for name in (BOOK, GSM8K, SPEC_BENCH) if not (self.folder / name).is_file()]
            if missing:
                raise FileNotFoundError(f"the folder of texts {self.folder} lacks {', '.join(missing)}")

    @property
    def name(self) -> str:
        """The name of the long text in results."""
        return "story" if self.folder is None else "tale_of_two_cities"

    def book(self) -> str:
        """The long text, its paragraphs unwrapped."""
        if self.folder is None:
            text = (OWN / "story.txt").read_text(encoding="utf-8")
        else:
            text = (self.folder / BOOK).read_text(encoding="utf-8")
            start, end = (text.find(mark) for mark in _FRAME)
            if start >= 0 and end > start:
                text = text[text.index("\n", start) : end]
        paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
        return "\n\n".join(part for part in paragraphs if part)

    def book_ids(self, tokenizer: Tokenizer) -> list[int]:
        """The long text's token ids."""
        if self._ids is None:
            self._ids = tokenizer.encode(self.book())
        return self._ids

    def gsm8k(self) -> list[dict[str, str]]:
        """Word problems: `question`, and `answer` with its reasoning and a last line '#### number'."""
        return _objects(OWN / "problems.jsonl" if self.folder is None else self.folder / GSM8K)

    def spec_bench(self) -> list[dict]:
        """Spec-Bench's questions: question_id, category, turns and, for most, reference."""
        return _objects(OWN / "questions.jsonl" if self.folder is None else self.folder / SPEC_BENCH)


def _objects(path: Path) -> list[dict]:
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        return [json.loads(line) for line in lines if line.strip()]
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} does not hold one JSON object a line: {error}") from error
