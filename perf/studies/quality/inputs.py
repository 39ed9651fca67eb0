# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The text that is measured on, the device and the precision of the model: what the study's commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from models.llama31_8b.checkpoint.tokenizer import Tokenizer
from models.llama31_8b.reference.alspec.acceptance import check_threshold
from models.llama31_8b.reference.load import LoadedModel, load_model

STORY = Path(__file__).with_name("texts") / "story.txt"
BOOK = "tale_of_two_cities.txt"  # Project Gutenberg's, in the folder that --data names
_FRAME = ("*** START OF", "*** END OF")  # Project Gutenberg's, around the book
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class Texts:
    """The long text of a run: the file `long_text`, else the book in `folder`, else the project's own short story."""

    folder: Path | None = None
    long_text: Path | None = None
    _ids: list[int] | None = field(default=None, repr=False)

    @property
    def path(self) -> Path:
        return self.long_text or (STORY if self.folder is None else self.folder / BOOK)

    @property
    def name(self) -> str:
        return self.path.stem

    def book(self) -> str:
        """Return the text, its paragraphs unwrapped. Raises ValueError for bytes that are not UTF-8."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path} is not UTF-8: {error}") from error
        start, end = (text.find(mark) for mark in _FRAME)
        if start >= 0 and end > start:
            text = text[text.index("\n", start) : end]
        paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
        return "\n\n".join(part for part in paragraphs if part)

    def book_ids(self, tokenizer: Tokenizer) -> list[int]:
        if self._ids is None:
            self._ids = tokenizer.encode(self.book())
        return self._ids


def torch_device(text: str) -> torch.device:
    """Return the device of that name. Raises argparse.ArgumentTypeError for one that is not here."""
    try:
        device = torch.device(text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"must be cpu, cuda or cuda:N, got {text!r}") from error
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if device.type not in ("cpu", "cuda") or (device.index or 0) >= count:
        raise argparse.ArgumentTypeError(f"{text!r} is not here: torch sees {torch.cuda.device_count()} CUDA devices")
    return device


def threshold(text: str) -> float:
    """Return an acceptance threshold, for argparse's `type=`."""
    try:
        return check_threshold(float(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be a number >= 0 or inf, got {text!r}") from error


def positive(text: str) -> int:
    """Return a whole number of at least 1, for argparse's `type=`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


@contextmanager
def loaded_on(device: torch.device, dtype: str, source: str | Path | None) -> Iterator[LoadedModel]:
    """Yield the reference model of `source` on a device, which is torch's default one while it is in use.

    Its name in results ends with the dtype, unless that is float32. Raises as load_model does.
    """
    with torch.device(device):
        loaded = load_model(source, DTYPES[dtype], device=device)
        name = loaded.config.name if dtype == "float32" else f"{loaded.config.name} {dtype}"
        yield replace(loaded, config=replace(loaded.config, name=name))
