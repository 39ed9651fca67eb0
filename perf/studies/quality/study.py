# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the parts of a run share: model, text, settings, and the exact pass each measurement is compared with."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

from models.llama31_8b.checkpoint.tokenizer import Tokenizer
from models.llama31_8b.reference.alspec.policies import ALSpecAttention, AttentionPolicy
from models.llama31_8b.reference.load import LoadedModel
from models.llama31_8b.reference.model.step import GuessRange

from .forward import TextPass, compared_columns, text_pass
from .predictors import ENDS, OWN_AVERAGE, PredictedGuess, Predictor

STORY = Path(__file__).with_name("texts") / "story.txt"
BOOK = "tale_of_two_cities.txt"  # Project Gutenberg's, in the folder that --data names
_FRAME = ("*** START OF", "*** END OF")  # Project Gutenberg's, around the book
# The product's own guesses, by the reference, and as parameters.
PRODUCTS = {"ends": ENDS, "budget": OWN_AVERAGE}


def predictor_of(words: str) -> Predictor:
    """Return one of PRODUCTS, or what the words describe. Raises ValueError as Predictor.parse does."""
    return PRODUCTS.get(words) or Predictor.parse(words)


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


class Settings(argparse.Namespace):
    """The options of a run, and the guesses that they say.

    contexts: tokens of a text. windows: texts of each context, taken evenly from the book. chunk_sizes: S. predictors:
    of PRODUCTS, or words that Predictor.parse takes. new_tokens: of a generated text.
    """

    out: Path
    thresholds: list[float]
    chunk_sizes: list[int]
    contexts: list[int]
    windows: int
    new_tokens: int
    predictors: list[str]
    tail_alignment: int

    @property
    def tail(self) -> str:
        """Return the value of the column tail_alignment: 32+ for tails of at least S keys, 1 for those of S keys."""
        return f"{self.tail_alignment}{'+' if self.tail_alignment > 1 else ''}"

    @property
    def finite(self) -> tuple[float, ...]:
        """Return the thresholds that may accept and refuse."""
        return tuple(threshold for threshold in self.thresholds if 0 < threshold < float("inf"))

    def guess_range(self, chunk_size: int, predictor: str = "ends") -> GuessRange:
        """Return what a guess of 2S keys reads. Raises ValueError where the predictor cannot divide them."""
        if predictor == "ends":
            return GuessRange.both_ends(chunk_size, self.tail_alignment)
        return predictor_of(predictor).guess_range(chunk_size)

    def policy(self, threshold: float, chunk_size: int, predictor: str) -> ALSpecAttention | PredictedGuess:
        """Return new attention-level speculation: the reference's own for PRODUCTS."""
        if predictor in PRODUCTS:
            return ALSpecAttention(threshold, self.guess_range(chunk_size, predictor))
        return self.in_steps(threshold, chunk_size, predictor, nodes=1)

    def in_steps(self, threshold: float, chunk_size: int, predictor: str, nodes: int) -> PredictedGuess:
        return PredictedGuess(threshold, self.guess_range(chunk_size, predictor), predictor_of(predictor), nodes)


class Place(NamedTuple):
    """Where a measurement is: a window of the text, beginning at token `start`, and the guess."""

    context: int
    start: int
    chunk_size: int
    predictor: str


class Cell(NamedTuple):
    """One measurement: the key columns its rows share, and what measures the others, of one row or of several."""

    key: dict[str, object]
    measure: Callable[[], dict[str, object] | list[dict[str, object]]]


# Keys that a guess reads, by the mean and the slowest key/value head of a layer, averaged over layers and tokens that
# speculate; empty for the guesses of the reference.
GUESSED = ("keys_read", "slowest_head", "hit_rate_by_layer")
RULE = "joint"  # the column of that name: by what norm the nodes of a step are decided
# The key columns of a Place.
KEYS = ("model", "text", "context", "start", "chunk_size", "tail_alignment", "predictor")


class Study:
    """A model, its text and settings, and what its passes gave so far: of exact ones the last is kept."""

    def __init__(self, loaded: LoadedModel, texts: Texts, settings: Settings) -> None:
        self.loaded, self.texts, self.settings = loaded, texts, settings
        self.layers = loaded.config.num_hidden_layers
        self.exact = lru_cache(maxsize=1)(self._exact)
        self.speculated = cache(self._speculated)

    def starts(self, context: int) -> list[int]:
        """Return where the windows of `context` tokens begin in the long text: settings.windows of them, and a last one
        to calibrate on, each in the middle of its share of the text.

        Raises ValueError when the text is too short for so many.
        """
        tokens, count = len(self.texts.book_ids(self.loaded.tokenizer)), self.settings.windows + 1
        if tokens < count * context:
            raise ValueError(
                f"{self.texts.name} has {tokens} tokens: too few for {count} texts of {context} "
                "(--windows, and one to calibrate on)"
            )
        share = tokens // count
        return [index * share + (share - context) // 2 for index in range(count)]

    def window(self, context: int, start: int) -> list[int]:
        """Return the `context` ids of the long text from token `start` on."""
        return self.texts.book_ids(self.loaded.tokenizer)[start : start + context]

    def _exact(self, context: int, start: int) -> TextPass:
        return text_pass(self.loaded.model, self.window(context, start), keep_scores=True)

    def compared(self, context: int, start: int, policy: AttentionPolicy) -> tuple[TextPass, dict[str, object]]:
        """Run a window under `policy`; return it, and its columns COMPARED with exact attention."""
        exact = self.exact(context, start)
        result = text_pass(self.loaded.model, self.window(context, start), policy, exact.scores)
        return result, compared_columns(result, exact, policy.guess_range.bypass_below)

    def _speculated(self, place: Place, threshold: float) -> dict[str, object]:
        """Run a window under attention-level speculation, measured once; return its columns COMPARED and GUESSED."""
        policy = self.settings.policy(threshold, place.chunk_size, place.predictor)
        result, columns = self.compared(place.context, place.start, policy)
        pairs = self.layers * int(str(columns["speculating"]))
        for name in ("keys_read", "slowest_head"):
            columns[name] = float(getattr(policy, name)) / pairs if isinstance(policy, PredictedGuess) else None
        columns["hit_rate_by_layer"] = join_rates(result.hit_rate_by_layer())
        return columns

    def key(self, place: Place) -> dict[str, object]:
        values = (self.loaded.config.name, self.texts.name, place.context, place.start, place.chunk_size)
        return dict(zip(KEYS, (*values, self.settings.tail, place.predictor)))

    def places(self, room: int = 0) -> Iterator[Place]:
        """Yield the place of every measurement on a window: where some token after the first context - room has more
        than 2S tokens cached, so that the guess does not read the whole text."""
        settings = self.settings
        for context in settings.contexts:
            guesses = product(self.starts(context)[:-1], settings.chunk_sizes, settings.predictors)
            yield from (Place(context, *guess) for guess in guesses if context - room > 2 * guess[1])


def join_rates(rates: list[float] | None) -> str:
    """Return rates as one CSV cell, three digits each."""
    return " ".join(f"{rate:.3f}" for rate in rates or ())
