# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`llama-alspec hits FILE`: read a text as if each of its tokens were decoded, and print how often the guess of the
attention passes, by layer. Runs on the CPU."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from runtime_patches.board.command_line import OneLineParser, log_to_stderr, run_command

from ..config import BUDGET, DEFAULT_PREDICTOR, PREDICTORS, ModelLoadError, UnsupportedModelError
from .options import DemoOptions, UserError, read_prompt

BOTH = "both"
PROG = "llama-alspec hits"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    log_to_stderr()
    parser = OneLineParser(prog=PROG, description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("file", metavar="FILE", type=Path, help="a UTF-8 text file")
    add("--model", metavar="MODEL", help="as of llama-alspec (default: $HF_MODEL, else SmolLM2-135M-Instruct)")
    add("--tokens", type=int, default=2048, metavar="N", help="the text's first N tokens (%(default)s)")
    add("--threshold", type=float, default=0.10, metavar="X", help="of the acceptance (%(default)s)")
    add("--chunk-size", type=int, default=128, metavar="S", help="tokens the guess reads at either end (%(default)s)")
    add(
        "--predictor",
        choices=(*PREDICTORS, BOTH),
        default=DEFAULT_PREDICTOR,
        help=f"what the guess reads, as of llama-alspec (%(default)s); {BOTH}: one beside the other",
    )
    add("--budget", type=float, default=BUDGET, metavar="X", help="of the predictor budget (%(default)s)")
    add("--json", action="store_true", help="print one JSON object")
    refusals = (UserError, ModelLoadError, UnsupportedModelError)
    return run_command(PROG, lambda: _run(parser.parse_args(argv)), refusals)


def _run(args: argparse.Namespace) -> int:
    if args.tokens < 1:
        raise UserError(f"--tokens must be at least 1, got {args.tokens}")
    names = PREDICTORS if args.predictor == BOTH else (args.predictor,)
    given = {"attention": "alspec", "threshold": args.threshold, "chunk_size": args.chunk_size}
    if "budget" not in names and args.budget != BUDGET:
        raise UserError(f"--budget needs --predictor budget or {BOTH}, got --predictor {args.predictor}")
    options = {name: DemoOptions(**given, predictor=name, budget=args.budget) for name in names}
    text = read_prompt(args.file)
    # Torch takes seconds to import: a mistake does not wait for it.
    from ..checkpoint.load import resolve_source

    resolve_source(args.model)
    from tqdm import tqdm

    from ..latency import estimates
    from ..reference.alspec import policies
    from ..reference.hits import measure_hits
    from ..reference.load import load_model
    from .report import ReportConsole, layer_bars, print_estimate

    loaded = load_model(args.model)
    whole = loaded.tokenizer.encode(text)
    ids = whole[: min(args.tokens, loaded.config.max_position_embeddings)]
    began, measured = time.perf_counter(), {}
    for name, chosen in options.items():
        with tqdm(total=len(ids), desc=name, unit="token", leave=False, disable=not sys.stderr.isatty()) as bar:

            def progress(done: int, bar: tqdm = bar) -> None:
                bar.update(done - bar.n)

            guess_range = policies.by_name(*chosen.attention_settings().named).guess_range
            measured[name] = measure_hits(loaded.model, ids, args.threshold, guess_range, progress)
    seconds = time.perf_counter() - began
    if args.json:
        found = {
            "model": loaded.source,
            "file": str(args.file),
            "tokens": len(ids),
            "tokens_of_file": len(whole),
            "threshold": "inf" if args.threshold == float("inf") else args.threshold,
            "chunk_size": args.chunk_size,
            "budget": args.budget if "budget" in names else None,
            "seconds": seconds,
        }
        figures = ("hit_rate", "hit_rate_per_layer", "hits", "misses", "bypassed_positions")
        of_each = [
            {"predictor": name}
            | {figure: getattr(counters, figure) for figure in figures}
            | {"estimate": estimates(counters.hit_rate, len(ids), name)}
            for name, counters in measured.items()
        ]
        found |= {"predictors": of_each} if len(of_each) > 1 else of_each[0]
        print(json.dumps(found, ensure_ascii=False, allow_nan=False))
        return 0
    print(
        f"{loaded.source}, {args.file}: {len(ids)} of {len(whole)} tokens in {seconds:.1f} s; threshold "
        f"{args.threshold:g}, S = {args.chunk_size}, predictor: {args.predictor}"
        f"{f', budget {args.budget:g}' if 'budget' in names else ''}"
    )
    if any(counters.hit_rate is None for counters in measured.values()):
        print(f"No guess was verified: speculation starts at {2 * args.chunk_size} tokens, 2S.")
        return 0
    console = ReportConsole()
    for name, counters in measured.items():
        console.print(
            f"{'' if len(measured) == 1 else f'{name}: '}hit rate [bold]{counters.hit_rate:.1%}[/bold]  "
            f"({counters.hits} hits, {counters.misses} misses; {counters.bypassed_positions} positions bypassed)"
        )
    console.print(f"\n[bold]hit rate by layer[/bold]{'' if len(measured) == 1 else ': ' + ', '.join(measured)}")
    console.print(layer_bars(*(counters.hit_rate_per_layer for counters in measured.values())))
    for name, counters in measured.items():
        console.print()
        print_estimate(counters.hit_rate, len(ids), console, name)
    return 0
