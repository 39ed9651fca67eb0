# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A model that writes texts, on any backend, and a run that shows the texts of some prompts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tqdm import tqdm

from .options import DemoOptions
from .report import RunReport, show_result
from .text import EndAtToken, TextsPrinter

if TYPE_CHECKING:
    from ..checkpoint.load import Checkpoint
    from ..results import GenerationResult
    from ..spec_decode.loop import Generator

OnToken = Callable[[int, int], bool]


class PrefillBar:
    """Progress of prompts, in a terminal: tokens, tokens/s and the time that is left. Open from `with` on."""

    def __init__(self) -> None:
        self._bar: tqdm | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of a prompt's `total` tokens are cached."""
        if self._bar is not None:
            self._bar.total, self._bar.n = total, done
            self._bar.refresh()
            if done == total:
                self._bar.close()

    def __enter__(self) -> None:
        self._bar = tqdm(desc="prefill", unit="token", file=sys.stderr, leave=False, disable=not sys.stderr.isatty())

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None


@dataclass
class Session:
    """A loaded model and what is asked of it, on any backend.

    checkpoint: the model's. generator: its loop. capacity: tokens that a prompt, what is cached before it, and its text
    may take. threads: of torch, None where it does not run the model. bar: shows prompts' progress while open.
    """

    checkpoint: Checkpoint
    options: DemoOptions
    generator: Generator
    capacity: int
    threads: int | None = None
    bar: PrefillBar = field(default_factory=PrefillBar)

    def generate(
        self, prompts: Sequence[Sequence[int]], on_token: OnToken, context: Sequence[Sequence[int]] | None = None
    ) -> GenerationResult:
        """Generate a text per prompt. context: for each user the first of the ids that the cache holds, after which its
        prompt goes; the rest of the cache is forgotten. Texts that KeyboardInterrupt ends count nowhere."""
        with self.bar:
            return self.generator.generate(
                prompts,
                max_new_tokens=self.options.max_new_tokens,
                sampling=self.options.sampling(),
                eos_token_ids=self.checkpoint.tokenizer.eos_token_ids,
                on_token=on_token,
                context_limit=self.capacity,
                context=context,
            )

    @property
    def cached(self) -> int:
        """Return the tokens of the first user in the cache."""
        return len(self.generator.cached_ids(0))


def run_prompts(session: Session, prompts: Sequence[Sequence[int]]) -> int:
    """Generate once, a text per prompt, and show texts and report, or the JSON object. Return the exit code, 130 where
    Ctrl-C ended the texts."""
    printer = TextsPrinter(session.checkpoint, len(prompts), None if session.options.json else sys.stdout)
    with EndAtToken(session.checkpoint, session.options, printer.push) as ending:
        result = session.generate(prompts, ending)
    printer.finish(result.token_ids)
    longest = max(len(prompt) + len(text) for prompt, text in zip(prompts, result.token_ids, strict=True))
    show_result(session, result, RunReport(session, [result], longest), interrupted=ending.ended)
    return 130 if ending.asked else 0
