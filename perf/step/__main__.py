# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure decode steps and layers on simulated chips: a speculating pair, a layer of Llama 3.1 8B.

`python -m perf.step pair`, `layer` or `values`, each with --help. The simulator's cost model is a floor,
and link times are guesses: read ratios of one run, not times.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from perf.lib.measuring_process import answered
from perf.step import layer, pair, values
from runtime_patches.board.command_line import OneLineParser, run_command

STEPS = {"pair": pair, "layer": layer, "values": values}


def _work(work: str, asked: Mapping[str, Any]) -> Any:
    return STEPS[work].work(**asked)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named bench; end with 2 for another name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = OneLineParser(prog="python -m perf.step", description=(__doc__ or "").splitlines()[0])
    told = " ".join(f"{name}: {(step.__doc__ or '').splitlines()[0]}" for name, step in STEPS.items())
    parser.add_argument("step", choices=STEPS, help=told)
    chosen = parser.parse_args(arguments[:1]).step
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return STEPS[chosen].main(arguments[1:])


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else run_command("python -m perf.step", main))
