# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Between a user's text and token ids: the prompt encoded, tokens shown as they come, and what ends a text."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from loguru import logger

from ..stop_strings import StopStrings
from .options import DemoOptions, UserError

if TYPE_CHECKING:
    from ..weights import Checkpoint

# A generator's word for a text that its callback ended: here --stop, or Ctrl-C.
BY_CALLBACK = "callback"


def encode_prompt(checkpoint: Checkpoint, options: DemoOptions, text: str) -> list[int]:
    """The prompt's ids, in the chat template unless there is none or --raw was given.

    Raises UserError for a prompt that has no tokens, or is longer than the context.
    """
    tokenizer = checkpoint.tokenizer
    if options.chat_template and tokenizer.chat_template:
        try:
            ids = tokenizer.apply_chat_template([{"role": "user", "content": text}])
        except ValueError as error:
            raise UserError(f"{error}; --raw continues the prompt as plain text") from error
    else:
        if options.chat_template:
            logger.info("{} has no chat template: continuing the prompt as plain text", checkpoint.source)
        ids = tokenizer.encode(text)
    limit = checkpoint.config.max_position_embeddings
    if not ids:
        raise UserError("the prompt is empty: it has no tokens")
    if len(ids) > limit:
        raise UserError(f"the prompt has {len(ids)} tokens, the context of {checkpoint.source} is {limit}")
    return ids


def token_callback(
    checkpoint: Checkpoint, options: DemoOptions, on_token: Callable[[int], None]
) -> Callable[[int, int], bool]:
    """A generator's callback: `on_token`, and True where the text reaches a string of --stop."""
    stops = StopStrings(options.stop, checkpoint.tokenizer.stream) if options.stop else None

    def produced(user: int, token: int) -> bool:
        on_token(token)
        return stops is not None and stops(user, token)

    return produced


class TextPrinter:
    """Writes tokens to a stream as whole characters, as they come. Ends of turn are not shown."""

    def __init__(self, checkpoint: Checkpoint, stream: TextIO | None) -> None:
        self._decoder = checkpoint.tokenizer.stream()
        self._stream = stream
        # A model can write escape sequences; a terminal must not obey them.
        self._plain = stream is not None and stream.isatty()
        self._last = "\n"

    def push(self, token: int) -> None:
        self._write(self._decoder.push(token))

    def finish(self) -> None:
        """Write what is held back, and a line end if there is none."""
        self._write(self._decoder.flush())
        if self._stream is not None and not self._last.endswith("\n"):
            self._write("\n")

    def _write(self, text: str) -> None:
        if self._stream is None or not text:
            return
        self._last = text
        if self._plain:
            text = "".join(c for c in text if c in "\n\t" or c.isprintable() or c in "\u200d\ufe0f")
        self._stream.write(text)
        self._stream.flush()


class EndAtToken:
    """While open, Ctrl-C ends the text at its next token, so that what was made is whole: its report, its cache.

    A second Ctrl-C, or one before the first token, interrupts at once (KeyboardInterrupt). Wraps a generator's
    callback; `asked` says whether the text was ended so.
    """

    def __init__(self, callback: Callable[[int, int], bool]) -> None:
        self._callback, self._begun, self.asked = callback, False, False
        self._before: Any = None

    def __call__(self, user: int, token: int) -> bool:
        self._begun = True
        return self._callback(user, token) or self.asked

    def __enter__(self) -> EndAtToken:
        # Python takes signals in the main thread only.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self._begun:
            raise KeyboardInterrupt
        self.asked = True
