# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Prompts to token ids, tokens shown as they come, and what ends a text."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from loguru import logger

from ..checkpoint.tokenizer import StopStrings, StreamDecoder
from ..config import ChatTemplateError
from .options import DemoOptions, UserError, prompt_name

if TYPE_CHECKING:
    from ..checkpoint.load import Checkpoint

# A generator's finish reason for a text that its callback ended: here --stop, or Ctrl-C.
BY_CALLBACK = "callback"


def encode_prompts(checkpoint: Checkpoint, options: DemoOptions, texts: Sequence[str] | None) -> list[list[int]] | None:
    """Return the prompts' ids, in the chat template unless there is none or --raw was given; None for a chat.

    Raises UserError for a prompt that has no tokens, is longer than the context, or holds a special token that the
    tokenizer names and the model does not have, and for a chat with a model that has no chat template.
    """
    tokenizer, limit = checkpoint.tokenizer, checkpoint.config.max_position_embeddings
    if texts is None:
        if not tokenizer.chat_template:
            raise UserError(f"{checkpoint.source} has no chat template to chat with; give --prompt for plain text")
        return None
    templated = options.chat_template and bool(tokenizer.chat_template)
    if options.chat_template and not templated:
        logger.info("{} has no chat template: continuing the prompt as plain text", checkpoint.source)
    prompts = []
    for number, text in enumerate(texts, 1):
        name = prompt_name(number, len(texts))
        try:
            message = {"role": "user", "content": text}
            ids = tokenizer.apply_chat_template([message]) if templated else tokenizer.encode(text)
        except ChatTemplateError as error:
            raise UserError(f"{error}; --raw continues the prompt as plain text") from error
        if not ids:
            raise UserError(f"{name} is empty: it has no tokens")
        if len(ids) > limit:
            raise UserError(f"{name} has {len(ids)} tokens, the context of {checkpoint.source} is {limit}")
        if max(ids) >= (rows := checkpoint.config.vocab_size):
            raise UserError(f"{name} holds token id {max(ids)}, {checkpoint.source} has {rows}")
        prompts.append(ids)
    return prompts


class TextPrinter:
    """Writes tokens to a stream as whole characters, as they come; ends of turn are not shown. stream: None shows
    nothing."""

    def __init__(self, checkpoint: Checkpoint, stream: TextIO | None) -> None:
        self._decoder, self._stream, self._last = StreamDecoder(checkpoint.tokenizer), stream, "\n"

    def push(self, token: int) -> None:
        self._write(self._decoder.push(token))

    def finish(self) -> None:
        """Write what is held back, and a line end if there is none."""
        self._write(self._decoder.flush())
        if not self._last.endswith("\n"):
            self._write("\n")

    def _write(self, text: str) -> None:
        if self._stream is None or not text:
            return
        self._last = text
        if self._stream.isatty():  # a model can write escape sequences; a terminal must not obey them
            text = "".join(c for c in text if c in "\n\t" or c.isprintable() or c in "\u200d\ufe0f")
        self._stream.write(text)
        self._stream.flush()


class TextsPrinter:
    """Shows a run's texts: one as it comes, several whole when all have ended, each under its number."""

    def __init__(self, checkpoint: Checkpoint, users: int, stream: TextIO | None) -> None:
        self._printers = [TextPrinter(checkpoint, stream) for _ in range(users)]
        self._stream = stream

    def push(self, user: int, token: int) -> None:
        """Take a new token of a text, numbered from 0."""
        if len(self._printers) == 1:
            self._printers[0].push(token)

    def finish(self, texts: Sequence[Sequence[int]]) -> None:
        """Show what is left. texts: all tokens of every text."""
        several = len(texts) > 1
        for number, (printer, tokens) in enumerate(zip(self._printers, texts, strict=True), 1):
            if several and self._stream is not None:
                self._stream.write(f"── text {number} of {len(texts)} ──\n")
            for token in tokens if several else ():
                printer.push(token)
            printer.finish()


class EndAtToken:
    """A generator's callback: it calls `on_token`, and ends a text that reaches a string of --stop.

    While open, Ctrl-C ends the texts at their next tokens, so that what was made is whole: its report, its cache. A
    second Ctrl-C, or one before the first token, interrupts at once (KeyboardInterrupt). asked: whether Ctrl-C was
    pressed; ended: users whose texts it ended.
    """

    def __init__(self, checkpoint: Checkpoint, options: DemoOptions, on_token: Callable[[int, int], None]) -> None:
        self._stops = StopStrings(options.stop, checkpoint.tokenizer) if options.stop else None
        self._on_token, self._begun, self.asked = on_token, False, False
        self.ended: set[int] = set()
        self._before: Any = None

    def __call__(self, user: int, token: int) -> bool:
        self._begun = True
        self._on_token(user, token)
        if self._stops is not None and self._stops(user, token):
            return True
        if self.asked:
            self.ended.add(user)
        return self.asked

    def __enter__(self) -> EndAtToken:
        # Python takes signals in the main thread only.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self._begun:
            raise KeyboardInterrupt
        self.asked = True
