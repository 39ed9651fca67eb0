# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stop strings: a text ends where it contains one, wherever token boundaries fall."""

from __future__ import annotations

from collections.abc import Sequence

from ..checkpoint.tokenizer import Decoder, StreamDecoder


class StopStrings:
    """A token callback of `generate` that returns True, which ends the text, once a stop string is complete.

    Matched is what the model wrote, special tokens by their names: "<|eot_id|>" is a stop string like any other, and
    text on both sides of a special token does not join. Several tokens of an accepted block arrive one by one, so a
    text ends inside a block as it would in plain decoding. Raises ValueError for no or empty strings.
    """

    def __init__(self, strings: Sequence[str], tokenizer: Decoder) -> None:
        if not strings or not all(strings):
            raise ValueError(f"stop strings must not be empty, got {list(strings)!r}")
        self.strings, self._tokenizer = tuple(strings), tokenizer
        self._longest = max(map(len, self.strings))
        self._streams: dict[int, StreamDecoder] = {}
        self._tails: dict[int, str] = {}

    def __call__(self, user: int, token: int) -> bool:
        stream = self._streams.get(user)
        if stream is None:
            stream = self._streams[user] = StreamDecoder(self._tokenizer, skip_special_tokens=False)
        text = self._tails.get(user, "") + stream.push(token)
        found = any(string in text for string in self.strings)
        # A later match can begin at most longest - 1 characters back.
        self._tails[user] = text[-(self._longest - 1) :] if self._longest > 1 else ""
        return found
