# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the parts of a run share: model, texts, settings, and the exact pass each measurement is compared with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

from models.llama31_8b.checkpoint.load import LoadedModel
from models.llama31_8b.reference.alspec.policies import ALSpecAttention, AttentionPolicy
from models.llama31_8b.reference.model.step import GuessRange
from perf.lib.tables import Table

from .forward import TextPass, check_length, text_pass
from .texts import Texts

# What a guess reads beside the last keys: as many first ones, or the tiles on which the last step's attention lay.
GUESSES = ("ends", "followed")


@dataclass(frozen=True)
class Settings:
    """The values a run goes through. contexts: tokens of a text. windows: texts of each context, taken evenly from
    the book. short_tail: of S - 31 to S keys instead of S to S + 31. questions: of each set. hashes: needles beside the
    facts. new_tokens: of a generated text. seed: of what is drawn. predictor: of the guess, see GUESSES."""

    out: Path
    thresholds: tuple[float, ...]
    chunk_sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    tail_alignment: int
    short_tail: bool
    windows: int
    questions: int
    hashes: int
    new_tokens: int
    seed: int
    predictor: str = "ends"

    @property
    def tail(self) -> str:
        """The value of the column tail_alignment: 32 for short tails, 32+ for those that hold S keys at least, 1 for S
        keys."""
        whole = self.tail_alignment > 1 and not self.short_tail
        return f"{self.tail_alignment}{'+' if whole else ''}"

    def guess_range(self, chunk_size: int) -> GuessRange:
        """Return what a guess of 2S keys reads. Raises ValueError where the predictor cannot divide them."""
        if self.predictor == "followed":
            return GuessRange.followed(chunk_size)
        return GuessRange(chunk_size, chunk_size, self.tail_alignment, whole_tail=not self.short_tail)


@dataclass(frozen=True)
class Cell:
    """One measurement: the key columns its rows share, and what measures the others, of one row or of several."""

    key: dict[str, object]
    measure: Callable[[], dict[str, object] | list[dict[str, object]]]
    # Key columns that tell its rows from another cell's with the same key; the rows bring their own values of them.
    also: Mapping[str, object] = field(default_factory=dict)


# Columns that compare a text under a policy with the same text under exact attention.
COMPARED = (
    "perplexity",
    "exact_perplexity",
    "loss_change",
    "loss_change_se",
    "divergence",
    "agreement",
    "deviation",
    "hit_rate",
    "tokens",
    "speculating",
)


class Speculated(NamedTuple):
    """The columns COMPARED of a text under attention-level speculation, and its hit rates."""

    columns: dict[str, object]
    hit_rate: float | None
    hit_rate_by_layer: list[float] | None


@dataclass
class Study:
    """A model, its texts and settings, and what its passes gave so far: of exact ones the last is kept."""

    loaded: LoadedModel
    texts: Texts
    settings: Settings
    _exact: tuple[object, TextPass] | None = field(default=None, repr=False)
    _speculated: dict[object, Speculated] = field(default_factory=dict, repr=False)

    @property
    def layers(self) -> int:
        return self.loaded.config.num_hidden_layers

    def starts(self, context: int) -> list[int]:
        """Return where the windows of `context` tokens begin in the long text: settings.windows of them, and a last one
        to calibrate on, each in the middle of its share of the text.

        Raises ValueError when the text is too short for so many, or the context beyond the model's.
        """
        check_length(self.loaded.model, context)
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

    def exact(self, context: int, start: int) -> TextPass:
        """Return the exact pass of a window."""
        key = (context, start)
        if self._exact is None or self._exact[0] != key:
            window = self.window(context, start)
            self._exact = (key, text_pass(self.loaded.model, window, keep_scores=True))
        return self._exact[1]

    def compared(self, context: int, start: int, policy: AttentionPolicy) -> tuple[TextPass, dict[str, object]]:
        """Run a window under `policy`; return it, and its columns COMPARED with exact attention; hit_rate is that of
        attention-level speculation, to be filled in for other policies."""
        exact = self.exact(context, start)
        result = text_pass(self.loaded.model, self.window(context, start), policy, exact.scores)
        return result, comparison(result, exact, policy.guess_range.bypass_below)

    def speculated(self, context: int, start: int, chunk_size: int, threshold: float) -> Speculated:
        """Run a window under attention-level speculation, measured once."""
        guess_range = self.settings.guess_range(chunk_size)
        key = (context, start, guess_range, threshold)
        if key not in self._speculated:
            policy = ALSpecAttention(threshold, guess_range)
            result, columns = self.compared(context, start, policy)
            self._speculated[key] = Speculated(columns, result.hit_rate(), result.hit_rate_by_layer())
        return self._speculated[key]

    def key(self, context: int, start: int, chunk_size: int) -> dict[str, object]:
        """Return the key columns KEYS of a window under a policy."""
        values = (self.loaded.config.name, self.texts.name, context, start, chunk_size)
        return dict(zip(KEYS, (*values, self.settings.tail, self.settings.predictor)))

    def places(self, room: int = 0) -> Iterator[tuple[int, int, int]]:
        """Yield (context, start, chunk size) of every measurement on a window: where some token after the first context
        - room has more than 2S tokens cached, so that the guess is none of the whole text."""
        for context in self.settings.contexts:
            for start in self.starts(context)[:-1]:
                for chunk_size in self.settings.chunk_sizes:
                    if context - room > 2 * chunk_size:
                        yield context, start, chunk_size


# start: the window's first token in the long text.
KEYS = ("model", "text", "context", "start", "chunk_size", "tail_alignment", "predictor")


def comparison(result: TextPass, exact: TextPass, speculated_from: int) -> dict[str, object]:
    """The columns COMPARED of a pass over a text beside its exact pass.

    speculated_from: 2S. loss_change (nats per token), its standard error, divergence (mean KL of the next token),
    agreement (share of equal likeliest tokens) and deviation (median of ||h~ - h|| / ||h|| after the final norm) are
    over the tokens with 2S and more cached, those that speculate; perplexities are over the whole text.
    """
    assert result.divergence is not None and result.exact_choices is not None, "made with the exact pass's scores"
    late = slice(speculated_from - 1, None)
    change = (result.losses - exact.losses)[late].double()
    moved = torch.linalg.vector_norm(result.states - exact.states, dim=1)[late]
    size = torch.linalg.vector_norm(exact.states, dim=1)[late]
    return {
        "perplexity": result.perplexity,
        "exact_perplexity": exact.perplexity,
        "loss_change": float(change.mean()),
        "loss_change_se": float(change.std() / len(change) ** 0.5),
        "divergence": float(result.divergence[late].double().mean()),
        "agreement": float((result.choices == result.exact_choices)[late].double().mean()),
        "deviation": float((moved / size).median()),
        "hit_rate": result.hit_rate(),
        "tokens": len(result.states),
        "speculating": len(moved),
    }


def fill(table: Table, cells: Sequence[Cell], done: Callable[[], None] = lambda: None) -> None:
    """Measure the cells that the table lacks and append each; its column `seconds` is their time."""
    for cell in cells:
        if not table.has({**cell.key, **cell.also}):
            start = time.perf_counter()
            measured = cell.measure()
            seconds = round(time.perf_counter() - start, 1)
            rows = measured if isinstance(measured, list) else [measured]
            table.append([{**cell.key, **row, "seconds": seconds} for row in rows])
        done()
