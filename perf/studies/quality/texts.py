# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The texts that are measured on: a story that comes with the project, or a folder with a book and questions.

`--text FILE` is a long text of one's own. The folder (`--data`, else $LLAMA_ALSPEC_TEXTS) holds tale_of_two_cities.txt
(Project Gutenberg) and, for the part `questions` alone, gsm8k_test.jsonl (one object per line with `question` and
`answer`) and spec_bench.jsonl (Spec-Bench's question.jsonl).
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
    """The long text and the questions of a run. folder: None for the project's own. long_text: a file of text, in the
    place of the folder's book."""

    folder: Path | None = None
    long_text: Path | None = None
    _ids: list[int] | None = field(default=None, repr=False)

    @property
    def _book(self) -> Path:
        return self.long_text or (OWN / "story.txt" if self.folder is None else self.folder / BOOK)

    def check(self, questions: bool) -> None:
        """Raise FileNotFoundError naming the files that are missing. questions: whether those are needed too."""
        needed = [self._book]
        if questions and self.folder is not None:
            needed += [self.folder / GSM8K, self.folder / SPEC_BENCH]
        missing = [path for path in needed if not path.is_file()]
        if missing:
            where = "" if missing[0] == self.long_text else f"the folder of texts {self.folder} lacks "
            raise FileNotFoundError(where + ", ".join(path.name if where else f"no file {path}" for path in missing))

    @property
    def name(self) -> str:
        """The name of the long text in results."""
        return self._book.stem

    def book(self) -> str:
        """Return the long text, its paragraphs unwrapped. Errors: ValueError for bytes that are no UTF-8."""
        try:
            text = self._book.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self._book} is not UTF-8: {error}") from error
        start, end = (text.find(mark) for mark in _FRAME)
        if start >= 0 and end > start:
            text = text[text.index("\n", start) : end]
        paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
        return "\n\n".join(part for part in paragraphs if part)

    def book_ids(self, tokenizer: Tokenizer) -> list[int]:
        """Return the long text's token ids."""
        if self._ids is None:
            self._ids = tokenizer.encode(self.book())
        return self._ids

    def gsm8k(self) -> list[dict[str, str]]:
        """Return word problems: `question`, and `answer` with its reasoning and a last line '#### number'."""
        return _objects(OWN / "problems.jsonl" if self.folder is None else self.folder / GSM8K)

    def spec_bench(self) -> list[dict]:
        """Return Spec-Bench's questions: question_id, category, turns and, for most, reference."""
        return _objects(OWN / "questions.jsonl" if self.folder is None else self.folder / SPEC_BENCH)


def _objects(path: Path) -> list[dict]:
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        return [json.loads(line) for line in lines if line.strip()]
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} does not hold one JSON object per line: {error}") from error
