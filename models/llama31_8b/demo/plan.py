# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`llama-alspec plan --context K`: the speed of each mesh of this machine's chips, and which one `--mesh auto` takes.

Speeds are a projection: cycles of Llama 3.1 8B's parts on simulated N150, a nanosecond each, and SmolLM2's hits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from runtime_patches.board import environment
from runtime_patches.board.command_line import OneLineParser, run_command

from ..latency import HITS, layout_rows, layouts
from .options import UserError

PROG = "llama-alspec plan"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the layouts; return the exit code."""
    parser = OneLineParser(prog=PROG, description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--context", type=int, required=True, metavar="K", help="cached tokens, up to 131072")
    add("--chips", type=int, metavar="N", help="N150 chips (default: those of this machine)")
    add("--json", action="store_true", help="print one JSON object")
    return run_command(PROG, lambda: _run(parser.parse_args(argv)), (UserError,))


def _run(args: argparse.Namespace) -> int:
    chips = len(environment.visible_boards()) if args.chips is None else args.chips
    if not chips and args.chips is None:
        raise UserError(f"no Tenstorrent board in {environment.BOARDS}: give --chips N")
    try:
        found = layouts(chips, args.context)
    except ValueError as error:
        raise UserError(f"--{error}") from error
    rows = layout_rows(found)
    if args.json:
        print(json.dumps({"chips": chips, "context": args.context, "hits": HITS["budget"], "layouts": rows}))
        return 0
    print(f"Llama 3.1 8B, {args.context} cached tokens, one user, projected; over: the fastest mesh of one row")
    print(f"{'mesh':6}{'attention':11}{'tokens/s':>8}{'over':>7}")
    for row in rows:
        print(f"{row['mesh']:6}{row['attention']:11}{row['tokens_per_s']:8.1f}{row['over_tp']:6.2f}x")
    return 0
