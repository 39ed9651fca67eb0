# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The options of the demo, every value checked before a model is loaded."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..generation.sampling_params import SamplingParams
from ..tt.mesh import MeshError, MeshShape
from ..tt.precision import PRECISIONS
from ..tt.settings import PREDICTORS
from ..tt.sharding import DECODE_SHARDINGS

if TYPE_CHECKING:
    from ..reference.alspec.policies import AttentionPolicy
    from ..reference.model.step import GuessRange
    from ..spec_decode.draft_shape import DraftShape

ATTENTIONS = ("exact", "sink", "static", "alspec")
AUTO = "auto"
SAMPLE_ON = ("device", "host")
DRAFTERS = ("ngram", "self", "model")
# What --device takes today; the error for anything else lists this.
DEVICES = (AUTO, "cpu", "sim", "n150")
# A cache for the whole 128K context of a Llama 3.1 takes gigabytes; --max-context asks for more.
CHAT_CONTEXT = 8192
MAX_PROMPTS = 8  # texts side by side in one batch
_NOBODY_SAID: frozenset[str] = frozenset({"what was given"})  # the mark of options made without `given`
_LAYER_ITEM = re.compile(r"(\d+)(?:-(\d+))?")


class UserError(ValueError):
    """Something the user asked for that cannot be done; shown as one line, exit code 2."""


@dataclass(frozen=True)
class DemoOptions:
    """The options of one run, by their command-line names. See `cli.add_arguments` for meanings."""

    prompt: tuple[str, ...] = ()
    prompt_file: tuple[str, ...] = ()
    model: str | None = None
    layers: int | None = None
    chat_template: bool = True
    max_context: int | None = None
    attention: str | None = None
    threshold: float = 0.10
    chunk_size: int = 128
    predictor: str = PREDICTORS[0]
    static_layers: str | None = None
    max_new_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop: tuple[str, ...] = ()
    draft: str | None = None
    draft_length: int | None = None
    adapt: bool = True
    tree: str | None = None
    fuzzy: int | None = None
    device: str = AUTO
    mesh: str | None = None
    precision: str | None = None
    decode_sharding: str | None = None
    sample_on: str | None = None
    json: bool = False
    html: str | None = None
    # Names of the options that were given; what differs from the defaults when nobody says.
    given: frozenset[str] = _NOBODY_SAID

    def __post_init__(self) -> None:
        """Check every value. Raises UserError naming the option and its value."""
        if self.given is _NOBODY_SAID:
            object.__setattr__(self, "given", frozenset(self._differing()))
        if self.attention is not None:
            _one_of("attention", self.attention, ATTENTIONS)
        _one_of("predictor", self.predictor, PREDICTORS)
        try:
            self.sampling()
            self.policy()
        except UserError:
            raise
        except ValueError as error:
            raise UserError(str(error)) from error
        for name in ("max_new_tokens", "max_context", "layers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, got {value}")
        if self.seed >= 2**63:
            raise UserError(f"seed must be below 2**63, got {self.seed}")
        if self.prompts_given > MAX_PROMPTS:
            raise UserError(f"up to {MAX_PROMPTS} prompts are continued side by side, got {self.prompts_given}")
        for number, prompt in enumerate(self.prompt, 1):
            name = prompt_name(number, len(self.prompt))
            check_utf8(name, prompt)
            if not prompt.strip():
                raise UserError(f"{name} is empty")
        for text in self.stop:
            check_utf8("--stop", text)
            if not text:
                raise UserError("--stop takes a text of at least one character")
        self._check_drafting()
        self._check_device()
        self._check_page()

    def _check_device(self) -> None:
        _one_of("device", self.device, DEVICES)
        if self.precision is not None:
            _one_of("precision", self.precision, PRECISIONS)
        if self.decode_sharding is not None:
            _one_of("decode sharding", self.decode_sharding, DECODE_SHARDINGS)
        if self.sample_on is not None:
            _one_of("place to sample on", self.sample_on, SAMPLE_ON)
        if self.mesh is not None:
            try:
                MeshShape.parse(self.mesh)
            except MeshError as error:
                raise UserError(f"--mesh: {error}") from error

    def _check_page(self) -> None:
        """Check before any work that the file of --html can be written."""
        if self.html is None:
            return
        path = Path(self.html)
        if not self.html or path.is_dir():
            raise UserError(f"--html takes a file to write, got {self.html!r}")
        if not path.parent.is_dir():
            raise UserError(f"--html {self.html}: there is no folder {path.parent}")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UserError(f"--html {self.html} cannot be written")

    def _differing(self) -> list[str]:
        """Return the options that do not have their default value."""
        return [
            field.name for field in fields(self) if field.name != "given" and getattr(self, field.name) != field.default
        ]

    def flags(self, *names: str) -> list[str]:
        """Return the flags of those of these options that were given."""
        return [flag_of(name) for name in names if name in self.given]

    def _check_drafting(self) -> None:
        try:
            self.draft_shape()
        except ValueError as error:
            option = f"--draft-length {self.draft_length}" if self.tree is None else f"--tree {self.tree}"
            raise UserError(f"{option}: {error}") from error
        if self.drafter == "none":
            asked = self._drafting_asked()
            if asked:
                raise UserError(f"{asked[0]} needs a drafter, got --draft none")
            return
        if self.drafter == "ngram" and self.fuzzy is not None:
            raise UserError("--fuzzy runs layers of a draft model in parallel; --draft ngram has no model")
        if self.drafter == "ngram" and self.tree == AUTO:
            raise UserError("--tree auto grows by a draft model's confidence; --draft ngram has none")
        if self.fuzzy is not None and self.fuzzy < 1:
            raise UserError(f"--fuzzy takes a number of layers, 1 (sequential) or more, got {self.fuzzy}")

    @property
    def prompts_given(self) -> int:
        """How often --prompt or --prompt-file was given."""
        return len(self.prompt) + len(self.prompt_file)

    def chat_context(self, limit: int) -> int:
        """Return the tokens that a conversation may have. limit: the model's context, or --max-context."""
        return limit if self.max_context is not None else min(limit, CHAT_CONTEXT)

    def _drafting_asked(self) -> list[str]:
        given = {
            "--draft-length": self.draft_length is not None,
            "--tree": self.tree is not None,
            "--fuzzy": self.fuzzy is not None,
            "--no-adapt": not self.adapt,
        }
        return [flag for flag, present in given.items() if present]

    @property
    def drafter(self) -> str:
        """none, self, ngram, or a draft model's source; self when only other drafting options are given."""
        if self.draft is not None:
            return self.draft
        return "self" if self._drafting_asked() else "none"

    @property
    def draft_kind(self) -> str:
        """none, or one of DRAFTERS."""
        return self.drafter if self.drafter in ("none", "ngram", "self") else "model"

    def draft_shape(self) -> DraftShape:
        """Return the chain or tree that --tree and --draft-length ask for. Raises ValueError."""
        from ..spec_decode.draft_shape import DraftShape

        return DraftShape.parse(self.tree, self.draft_length)

    def sampling(self) -> SamplingParams:
        """Return the sampling parameters that these options ask for."""
        return SamplingParams(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed)

    def policy(self) -> AttentionPolicy:
        """Return a new attention policy, alspec where none was chosen."""
        from ..reference.alspec import policies

        if self.attention == "exact":
            return policies.ExactAttention(self.chunk_size)
        if self.attention == "sink":
            return policies.SinkAttention(self.chunk_size)
        if self.attention == "static":
            return policies.StaticAttention(self.chunk_size, self.static_layer_set())
        return policies.ALSpecAttention(self.threshold, self.guess_range())

    def guess_range(self) -> GuessRange:
        """Return what the guess of alspec reads. Raises ValueError for a chunk size that it cannot have."""
        from ..reference.model.step import GuessRange

        if self.predictor == "ends":
            return GuessRange.both_ends(self.chunk_size)
        try:
            return GuessRange.followed(self.chunk_size)
        except ValueError as error:
            raise UserError(f"--predictor {self.predictor}: {error}") from error

    def static_layer_set(self) -> frozenset[int]:
        """Return the layers of `--static-layers 0,4,10-12`, none without it. Raises UserError for anything else."""
        layers: set[int] = set()
        for item in [] if self.static_layers is None else self.static_layers.split(","):
            match = _LAYER_ITEM.fullmatch(item.strip())
            if not match:
                raise UserError(f"--static-layers takes layers such as 0,4,10-12; got {self.static_layers!r}")
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first or last > 9999:
                raise UserError(f"--static-layers: {item.strip()!r} is not a range of layers")
            layers.update(range(first, last + 1))
        return frozenset(layers)

    def check_static_layers(self, model: str, layers: int) -> None:
        """Raise UserError where --static-layers names one that `model`, of so many layers, does not have."""
        if beyond := [layer for layer in sorted(self.static_layer_set()) if layer >= layers]:
            raise UserError(f"--static-layers names layer {beyond[0]}, but {model} has layers 0 to {layers - 1}")

    def prompt_texts(self) -> tuple[str, ...] | None:
        """Return the prompts from --prompt, --prompt-file or piped standard input; None means interactive chat.

        Raises UserError for a file that cannot be read as UTF-8 text, and for an empty prompt.
        """
        if self.prompt:
            return self.prompt
        if self.prompt_file:
            return tuple(read_prompt(Path(file)) for file in self.prompt_file)
        if sys.stdin is not None and sys.stdin.isatty():
            if self.json:
                raise UserError("--json needs a prompt: give --prompt or --prompt-file, or pipe one in")
            return None
        try:
            text = sys.stdin.read() if sys.stdin is not None else ""
        except UnicodeDecodeError as error:
            raise UserError(f"standard input is not UTF-8 text: {error}") from error
        check_utf8("standard input", text)
        if not text.strip():
            raise UserError("no prompt: give --prompt or --prompt-file, pipe text in, or run in a terminal to chat")
        return (text,)

    def to_dict(self) -> dict[str, Any]:
        """Return what --json shows: every option with its value; one prompt or file as itself, several as a list."""
        values = {**asdict(self), "stop": list(self.stop)}
        for name in ("prompt", "prompt_file"):
            several = list(getattr(self, name))
            values[name] = several if len(several) > 1 else next(iter(several), None)
        del values["given"]
        return values


def flag_of(name: str) -> str:
    """Return the command-line flag of an option by its name here."""
    negative = {"chat_template": "--raw", "adapt": "--no-adapt"}
    return negative.get(name, f"--{name.replace('_', '-')}")


def prompt_name(number: int, count: int) -> str:
    """Return what an error calls prompt `number` (from 1) of `count`."""
    return "the prompt" if count == 1 else f"prompt {number}"


def check_utf8(name: str, text: str) -> None:
    """Raise UserError for a text whose bytes were not UTF-8: Python keeps each of these as a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) & 0xFF
        raise UserError(f"{name} is not UTF-8 text: byte 0x{byte:02x} after {error.start} characters") from error


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UserError(f"no {name} {value!r}; available: {', '.join(allowed)}")


def read_prompt(path: Path) -> str:
    """Return the text of a file. Raises UserError for one that is empty, cannot be read or is not UTF-8."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows begin a file with a byte order mark
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read the file {path}: {error.strerror}") from error
    if not text.strip():
        raise UserError(f"the file {path} is empty")
    return text
