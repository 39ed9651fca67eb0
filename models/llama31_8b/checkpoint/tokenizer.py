# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Text to token ids and back, chat templates, streaming of whole characters, and strings that end a text."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import ChatTemplateError, ModelLoadError

_REPLACEMENT = "\ufffd"


class Tokenizer:
    """transformers' tokenizer of a Llama chat model, read by the rules in tokenizer.json whatever its class, with
    errors of this project.

    backend: a PreTrainedTokenizerFast. chat_template: None for a model without one. eos_token_ids: ids that end a turn.
    """

    def __init__(self, backend: Any, eos_token_ids: Sequence[int] = ()) -> None:
        self._backend, self.chat_template = backend, backend.chat_template
        own = [] if backend.eos_token_id is None else [backend.eos_token_id]
        self.eos_token_ids: tuple[int, ...] = tuple(dict.fromkeys([*eos_token_ids, *own]))

    @classmethod
    def from_folder(cls, folder: str | Path, eos_token_ids: Sequence[int] = ()) -> Tokenizer:
        """Read the tokenizer of a Hugging Face folder. Raises FileNotFoundError or ModelLoadError naming the file."""
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(f"no tokenizer.json in {folder}: slow (SentencePiece) tokenizers must be converted")
        if why := pointer(path):
            raise ModelLoadError(f"{path} is not a tokenizer: {why}")
        from transformers import PreTrainedTokenizerFast  # takes a second

        try:
            return cls(PreTrainedTokenizerFast.from_pretrained(str(folder)), eos_token_ids)
        except Exception as error:  # whatever damaged files raise
            raise ModelLoadError(f"{path} or a file beside it is damaged: {error}") from error

    @property
    def vocab_size(self) -> int:
        """One more than the highest id, special tokens left out: files may name some that the model has no row for."""
        special = set(self._backend.all_special_tokens)
        return max(index for token, index in self._backend.get_vocab().items() if token not in special) + 1

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of `text`; special tokens written in it count as themselves. add_special_tokens: begin
        with BOS, if the model does."""
        return self._backend.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Return the text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        return self._backend.decode(
            list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the token ids of `messages` ({"role", "content"} each) up to where the model's reply begins; the
        template itself writes the BOS where the model wants one.

        Raises ChatTemplateError when the model has no template, and when the template refuses the messages or fails.
        """
        try:
            text = self._backend.apply_chat_template(
                [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # whatever the template's own operations raise
            raise ChatTemplateError(f"the chat template refuses these messages: {error}") from error
        return self.encode(text, add_special_tokens=False)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the vocabulary in id order: equal for two models whose token ids mean the same."""
        ordered = sorted((index, token) for token, index in self._backend.get_vocab().items())
        return hashlib.sha256(json.dumps(ordered, ensure_ascii=True).encode()).hexdigest()


class StreamDecoder:
    """Text of a growing sequence, piece by piece, whole characters only.

    A character may span tokens; its bytes are held back until it is complete. The pieces of `push`, and
    `flush` at the end, joined, are `decode` of all ids. tokenizer: a Tokenizer, or one of transformers.
    """

    def __init__(self, tokenizer: Any, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        # The piece before the pending one: some decoders treat the first word of a text apart.
        self._context: list[int] = []
        self._pending: list[int] = []

    def push(self, token_id: int) -> str:
        """Take one more token and return the text that became complete, often none."""
        self._pending.append(token_id)
        text = self._new_text()
        if not text or text.endswith(_REPLACEMENT):
            return ""
        self._context, self._pending = self._pending, []
        return text

    def flush(self) -> str:
        """Return the text still held back at the end of the sequence; an incomplete character shows as U+FFFD."""
        text = self._new_text()
        self._context, self._pending = self._pending or self._context, []
        return text

    def _new_text(self) -> str:
        before = self._tokenizer.decode(self._context, self._skip)
        return self._tokenizer.decode(self._context + self._pending, self._skip)[len(before) :]


def pointer(path: Path) -> str | None:
    """Return what to do about a Git LFS pointer in the place of a file; None for any other file."""
    with path.open("rb") as file:
        if not file.read(64).startswith(b"version https://git-lfs"):
            return None
    return "it is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`"


def read_json(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file, {} where there is no file. Raises ModelLoadError for anything else."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelLoadError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise ModelLoadError(f"{path} holds {type(found).__name__}, not an object")
    return found


class StopStrings:
    """A token callback of `generate` that returns True, which ends the text, once a stop string is complete.

    Matched is what the model wrote, special tokens by their names: "<|eot_id|>" is a stop string like any other, and
    text on both sides of a special token does not join. Several tokens of an accepted block arrive one by one, so a
    text ends inside a block as it would in plain decoding. Raises ValueError for no or empty strings.
    """

    def __init__(self, strings: Sequence[str], tokenizer: Any) -> None:
        if not strings or not all(strings):
            raise ValueError(f"stop strings must not be empty, got {list(strings)!r}")
        self.strings = tuple(strings)
        self._longest = max(map(len, self.strings))
        self._streams: defaultdict[int, StreamDecoder] = defaultdict(
            lambda: StreamDecoder(tokenizer, skip_special_tokens=False)
        )
        self._tails: defaultdict[int, str] = defaultdict(str)

    def __call__(self, user: int, token: int) -> bool:
        text = self._tails[user] + self._streams[user].push(token)
        found = any(string in text for string in self.strings)
        # A later match can begin at most longest - 1 characters back.
        self._tails[user] = text[-(self._longest - 1) :] if self._longest > 1 else ""
        return found
