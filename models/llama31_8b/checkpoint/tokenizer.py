# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Text to token ids and back, chat templates, and streaming of whole characters.

Built on `tokenizers` and jinja2 alone: transformers' AutoTokenizer gives the same ids and texts (the tests compare),
but importing it takes nearly a second of every start. Words are always split by tokenizer.json's rules; transformers 5
takes GPT-2's where `tokenizer_class` is GPT2Tokenizer (its issue 45920).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken
from tokenizers import Tokenizer as _Backend

from ..config import ChatTemplateError, ModelLoadError

_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_REPLACEMENT = "\ufffd"


class Tokenizer:
    """A `tokenizers` tokenizer with what a Llama chat model needs around it.

    `vocab_size` counts added tokens. `bos_token_id` is None when there is no such token, `adds_bos` tells
    whether plain text begins with it. `eos_token_ids`: ids that end a turn.
    """

    def __init__(
        self,
        backend: _Backend,
        *,
        eos_token_ids: Sequence[int] = (),
        special_tokens: Mapping[str, str] | None = None,
        chat_template: str | None = None,
    ) -> None:
        self._backend = backend
        # A training run may have left its settings in tokenizer.json; prompts are neither cut nor filled up.
        backend.no_truncation()
        backend.no_padding()
        known = {
            name: token for name, token in (special_tokens or {}).items() if backend.token_to_id(token) is not None
        }
        self.special_tokens = known
        self.chat_template = chat_template
        bos = self.special_tokens.get("bos_token")
        self.bos_token_id: int | None = backend.token_to_id(bos) if bos else None
        # The post-processor in tokenizer.json decides; what it puts before a word is the rule.
        ids = backend.encode("a", add_special_tokens=True).ids
        self.adds_bos = self.bos_token_id is not None and bool(ids) and ids[0] == self.bos_token_id
        own_eos = backend.token_to_id(self.special_tokens.get("eos_token", ""))
        ends = list(eos_token_ids) + ([] if own_eos is None else [own_eos])
        self.eos_token_ids: tuple[int, ...] = tuple(dict.fromkeys(ends))

    @classmethod
    def from_folder(cls, folder: str | Path, eos_token_ids: Sequence[int] = ()) -> Tokenizer:
        """Read a Hugging Face folder: tokenizer.json, tokenizer_config.json, chat_template.jinja and, where the second
        does not list added tokens, special_tokens_map.json, which then counts more, and added_tokens.json.

        Raises FileNotFoundError or ModelLoadError naming the file.
        """
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(f"no tokenizer.json in {folder}: slow (SentencePiece) tokenizers must be converted")
        try:
            backend = _Backend.from_file(str(path))
        except Exception as error:  # the Rust library raises bare Exception
            raise ModelLoadError(f"{path} is not a tokenizer: {pointer(path) or error}") from error
        config = read_json(folder / "tokenizer_config.json")
        added = config.get("added_tokens_decoder")
        if added is None:
            config |= read_json(folder / "special_tokens_map.json")
            legacy = read_json(folder / "added_tokens.json")
            added = {str(index): {"content": token} for token, index in legacy.items()}
        template_path = folder / "chat_template.jinja"
        template: Any = config.get("chat_template")
        try:
            special = _name_special_tokens(backend, config, added)
            if template_path.is_file():
                template = template_path.read_text(encoding="utf-8")
            if isinstance(template, list):  # several named templates; "default" is the one for chat
                template = {item["name"]: item["template"] for item in template}.get("default")
            if template is not None and not isinstance(template, str):
                raise TypeError(f"chat_template is {type(template).__name__}")
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise ModelLoadError(f"{folder}: the files beside tokenizer.json are damaged ({error})") from error
        backend.encode_special_tokens = bool(config.get("split_special_tokens"))
        return cls(backend, eos_token_ids=eos_token_ids, special_tokens=special, chat_template=template)

    @property
    def vocab_size(self) -> int:
        """One more than the highest id, added tokens included."""
        return max(self._backend.get_vocab(with_added_tokens=True).values()) + 1

    def encode(self, text: str, add_bos: bool | None = None) -> list[int]:
        """Return the token ids of `text`; special tokens written in it count as themselves, as in transformers.
        add_bos None: as the model does by itself.

        Raises ValueError when asked for a BOS that the model does not have.
        """
        if add_bos and self.bos_token_id is None:
            raise ValueError("this tokenizer has no BOS token")
        ids = self._backend.encode(text, add_special_tokens=False).ids
        if self.bos_token_id is not None and (self.adds_bos if add_bos is None else add_bos):
            return [self.bos_token_id, *ids]
        return ids

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Return the text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        return self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def render_chat(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """Fill the chat template with `messages` ({"role", "content"} each), as transformers renders it.

        Raises ChatTemplateError when the model has no template, when the template refuses the messages or fails, and
        when it writes a special token that no file names.
        """
        if not self.chat_template:
            raise ChatTemplateError("this model has no chat template: use plain text")
        try:
            template = _environment().from_string(self.chat_template)
            missing = {name: jinja2.StrictUndefined(name=name) for name in _SPECIAL_NAMES}
            return template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **missing | self.special_tokens,
            )
        except Exception as error:  # whatever the template's own operations raise
            raise ChatTemplateError(f"the chat template refuses these messages: {error}") from error

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> list[int]:
        """Return the token ids of `render_chat`; the template itself writes the BOS where the model wants one."""
        return self.encode(self.render_chat(messages, add_generation_prompt), add_bos=False)

    def stream(self, skip_special_tokens: bool = True) -> StreamDecoder:
        """Return a new incremental decoder for one sequence."""
        return StreamDecoder(self, skip_special_tokens)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the vocabulary in id order: equal for two models whose token ids mean the same."""
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        ordered = sorted((index, token) for token, index in vocabulary.items())
        return hashlib.sha256(json.dumps(ordered, ensure_ascii=True).encode()).hexdigest()


class Decoder(Protocol):
    """What turns ids into text: a Tokenizer, or one of transformers."""

    def decode(self, ids: list[int], skip_special_tokens: bool, /) -> str: ...


class StreamDecoder:
    """Text of a growing sequence, piece by piece, whole characters only.

    A character may span tokens; its bytes are held back until it is complete. The pieces of `push`, and
    `flush` at the end, joined, are `decode` of all ids.
    """

    def __init__(self, tokenizer: Decoder, skip_special_tokens: bool = True) -> None:
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


def _name_special_tokens(backend: _Backend, config: Mapping[str, Any], added: Mapping[Any, Any]) -> dict[str, str]:
    """Give the tokenizer what the files beside tokenizer.json add to it, as transformers does; return the tokens by
    their names in chat templates.

    Args:
        config: tokenizer_config.json. A name ends in "_token"; `extra_special_tokens`, formerly
            `additional_special_tokens`, are a list, or an object of more names.
        added: Tokens as `added_tokens_decoder` lists them, an object each.
    """
    known = {entry.content: entry for entry in backend.get_added_tokens_decoder().values()}
    listed = [_added_token(token) for _, token in sorted(added.items(), key=lambda item: int(item[0]))]
    backend.add_tokens([token for token in listed if repr(token) != repr(known.get(token.content))])
    extra = config.get("extra_special_tokens", config.get("additional_special_tokens")) or []
    names = {**config, **(extra if isinstance(extra, dict) else {})}
    named = {
        name: _added_token(token, special=True, normalized=False)
        for name, token in names.items()
        if token and isinstance(token, (str, dict)) and (name.endswith("_token") or name in extra)
    }
    special = [*named.values(), *(_added_token(token, special=True, normalized=False) for token in extra)]
    known = {entry.content: entry for entry in backend.get_added_tokens_decoder().values()}
    # One that the vocabulary does not have, such as a padding token, would get an id without a row in the model.
    backend.add_special_tokens(
        [one for one in special if one.content not in known and backend.token_to_id(one.content) is not None]
    )
    return {name: token.content for name, token in named.items()}


def _added_token(token: Any, **default: bool) -> AddedToken:
    """Return a token that a JSON file holds as a string or an AddedToken object. Raises ValueError for others."""
    if isinstance(token, str):
        return AddedToken(token, **default)
    kept = ("lstrip", "rstrip", "single_word", "normalized", "special")
    if not isinstance(token, dict) or not isinstance(token.get("content"), str):
        raise ValueError(f"{json.dumps(token)[:60]} among the special tokens is no token")
    return AddedToken(token["content"], **{**default, **{name: token[name] for name in kept if name in token}})


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` around what the assistant says, by which transformers masks training texts: it prints its
    content."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    """Return transformers' environment: jinja2's sandbox, since templates come with the weights."""

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _Generation]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment


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
