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

from perf.lib.chip import answered
from perf.lib.data_file import Questions
from perf.step import layer, pair, values

STEPS = {"pair": pair, "layer": layer, "values": values}


def _work(work: str, asked: Mapping[str, Any]) -> Any:
    return STEPS[work].work(**asked)


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0; 2 with one line for what makes no sense or no chip holds, before any work."""
    questions = Questions("python -m perf.step", (__doc__ or "").splitlines()[0], "STEP")
    for name, step in STEPS.items():
        text = (step.__doc__ or "").splitlines()[0]
        step.add_options(questions.add(name, step.answer, text, write=step is not layer))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return questions.run(argv, (ValueError,))


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
