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
        choices=PREDICTORS,
        default=DEFAULT_PREDICTOR,
        help="what the guess reads, as of llama-alspec (%(default)s)",
    )
    add("--budget", type=float, default=BUDGET, metavar="X", help="of the predictor budget (%(default)s)")
    add("--json", action="store_true", help="print one JSON object")
    refusals = (UserError, ModelLoadError, UnsupportedModelError)
    return run_command(PROG, lambda: _run(parser.parse_args(argv)), refusals)


def _run(args: argparse.Namespace) -> int:
    if args.tokens < 1:
        raise UserError(f"--tokens must be at least 1, got {args.tokens}")
    by_budget = args.predictor == "budget"
    if not by_budget and args.budget != BUDGET:
        raise UserError(f"--budget needs --predictor budget, got --predictor {args.predictor}")
    chosen = {"attention": "alspec", "threshold": args.threshold, "chunk_size": args.chunk_size}
    options = DemoOptions(**chosen, predictor=args.predictor, budget=args.budget)
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
    guess_range = policies.by_name(*options.attention_settings().named).guess_range
    began = time.perf_counter()
    with tqdm(total=len(ids), desc="hits", unit="token", leave=False, disable=not sys.stderr.isatty()) as bar:
        counters = measure_hits(loaded.model, ids, args.threshold, guess_range, lambda done: bar.update(done - bar.n))
    seconds = time.perf_counter() - began
    if args.json:
        found = {
            "model": loaded.source,
            "file": str(args.file),
            "tokens": len(ids),
            "tokens_of_file": len(whole),
            "threshold": "inf" if args.threshold == float("inf") else args.threshold,
            "chunk_size": args.chunk_size,
            "budget": args.budget if by_budget else None,
            "seconds": seconds,
            "predictor": args.predictor,
        }
        figures = ("hit_rate", "hit_rate_per_layer", "hits", "misses", "bypassed_positions")
        found |= {figure: getattr(counters, figure) for figure in figures}
        found["estimate"] = estimates(counters.hit_rate, len(ids), args.predictor)
        print(json.dumps(found, ensure_ascii=False, allow_nan=False))
        return 0
    print(
        f"{loaded.source}, {args.file}: {len(ids)} of {len(whole)} tokens in {seconds:.1f} s; threshold "
        f"{args.threshold:g}, S = {args.chunk_size}, predictor: {args.predictor}"
        f"{f', budget {args.budget:g}' if by_budget else ''}"
    )
    if counters.hit_rate is None:
        print(f"No guess was verified: speculation starts at {2 * args.chunk_size} tokens, 2S.")
        return 0
    console = ReportConsole()
    console.print(
        f"hit rate [bold]{counters.hit_rate:.1%}[/bold]  "
        f"({counters.hits} hits, {counters.misses} misses; {counters.bypassed_positions} positions bypassed)"
    )
    console.print("\n[bold]hit rate by layer[/bold]")
    console.print(layer_bars(counters.hit_rate_per_layer))
    console.print()
    print_estimate(counters.hit_rate, len(ids), console, args.predictor)
    return 0
