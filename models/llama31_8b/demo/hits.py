# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`llama-alspec hits FILE`: read a text as if each of its tokens were decoded, and print how often the guess of the
attention passes, by layer. Runs on the CPU."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runtime_patches.board.command_line import OneLineParser, log_to_stderr, run_command

from ..config import ModelLoadError
from .options import DemoOptions, UserError, add_option, read_prompt, table

PROG = "llama-alspec hits"
OPTIONS = ("model", "threshold", "chunk_size", "predictor", "budget", "json")  # of the demo's


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    log_to_stderr()
    parser = OneLineParser(prog=PROG, description=__doc__, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    parser.add_argument("file", metavar="FILE", type=Path, help="a UTF-8 text file")
    parser.add_argument("--tokens", type=int, default=2048, metavar="N", help="the text's first N tokens (%(default)s)")
    for one in table():
        if one.name in OPTIONS:
            add_option(parser, one)
    refusals = (UserError, ModelLoadError)
    return run_command(PROG, lambda: _run(**vars(parser.parse_args(argv))), refusals)


def _run(file: Path, tokens: int, **chosen: Any) -> int:
    if tokens < 1:
        raise UserError(f"--tokens must be at least 1, got {tokens}")
    options = DemoOptions(**chosen, device="cpu", attention="alspec", given=frozenset(chosen))
    options.check_device()
    by_budget = options.predictor == "budget"
    text = read_prompt(file)
    # Torch takes seconds to import: a mistake does not wait for it.
    from ..checkpoint.load import resolve_source

    resolve_source(options.model)
    from tqdm import tqdm

    from ..latency import estimates
    from ..reference.alspec import policies
    from ..reference.hits import measure_hits
    from ..reference.load import load_model
    from .report import ReportConsole, print_estimate, print_layers

    loaded = load_model(options.model)
    whole = loaded.tokenizer.encode(text)
    ids = whole[: min(tokens, loaded.config.max_position_embeddings)]
    guess_range = policies.by_name(*options.attention_settings().named).guess_range
    began = time.perf_counter()
    with tqdm(total=len(ids), desc="hits", unit="token", leave=False, disable=None) as bar:
        counters = measure_hits(
            loaded.model, ids, options.threshold, guess_range, lambda done: bar.update(done - bar.n)
        )
    seconds = time.perf_counter() - began
    if options.json:
        found = {
            "model": loaded.source,
            "file": str(file),
            "tokens": len(ids),
            "tokens_of_file": len(whole),
            "threshold": options.to_dict()["threshold"],
            "chunk_size": options.chunk_size,
            "budget": options.budget if by_budget else None,
            "seconds": seconds,
            "predictor": options.predictor,
        }
        figures = ("hit_rate", "hit_rate_per_layer", "hits", "misses", "bypassed_positions")
        found |= {figure: getattr(counters, figure) for figure in figures}
        found["estimate"] = estimates(counters.hit_rate, len(ids), options.predictor)
        print(json.dumps(found, ensure_ascii=False, allow_nan=False))
        return 0
    print(
        f"{loaded.source}, {file}: {len(ids)} of {len(whole)} tokens in {seconds:.1f} s; threshold "
        f"{options.threshold:g}, S = {options.chunk_size}, predictor: {options.predictor}"
        f"{f', budget {options.budget:g}' if by_budget else ''}"
    )
    if counters.hit_rate is None:
        print(f"No guess was verified: speculation starts at {2 * options.chunk_size} tokens, 2S.")
        return 0
    console = ReportConsole()
    console.print(
        f"hit rate [bold]{counters.hit_rate:.1%}[/bold]  "
        f"({counters.hits} hits, {counters.misses} misses; {counters.bypassed_positions} positions bypassed)"
    )
    print_layers(counters.hit_rate_per_layer, console)
    print_estimate(counters.hit_rate, len(ids), console, options.predictor)
    return 0
