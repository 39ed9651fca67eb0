# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stop strings: a text ends where it contains one, wherever token boundaries fall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class TextDecoder(Protocol):
    """Turns one user's ids into text as they come."""

    def push(self, token_id: int) -> str: ...


class StopStrings:
    """A token callback of `generate` that returns True, which ends the text, once a stop string is complete.

    Several tokens of an accepted block arrive one by one, so a text ends inside a block as it would in plain
    decoding. new_decoder: makes one user's decoder. Raises ValueError for no or empty strings.
    """

    def __init__(self, strings: Sequence[str], new_decoder: Callable[[], TextDecoder]) -> None:
        if not strings or not all(strings):
            raise ValueError(f"stop strings must not be empty, got {list(strings)!r}")
        self.strings, self._new_decoder = tuple(strings), new_decoder
        self._longest = max(map(len, self.strings))
        self._decoders: dict[int, TextDecoder] = {}
        self._tails: dict[int, str] = {}

    def __call__(self, user: int, token: int) -> bool:
        decoder = self._decoders.get(user)
        if decoder is None:
            decoder = self._decoders[user] = self._new_decoder()
        text = self._tails.get(user, "") + decoder.push(token)
        found = any(string in text for string in self.strings)
        # A later match can begin at most longest - 1 characters back.
        self._tails[user] = text[-(self._longest - 1) :] if self._longest > 1 else ""
        return found
