# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Project how fast boards would be: tokens/s by layout and hits, and what speculation gains."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from models.llama31_8b.latency import CHIP_COUNTS
from perf.lib.data_file import Questions, Row, new_file, read, table
from perf.projection import gains, layouts, prefill

Answer = tuple[list[Row], str]  # rows of a data file, and what is printed
HITS_OF = {"threshold": 0.10, "chunk_size": 128}  # the measured rows that are projected


def _listed(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in sentences)


def _layouts(options: argparse.Namespace) -> Answer:
    rows = layouts.layout_rows()
    if options.plot:
        layouts.save_plot(rows, options.plot)
    return rows, f"{table(rows, ' '.join(rows[0]))}\n\n{_listed(layouts.ASSUMPTIONS)}"


def _hits(options: argparse.Namespace) -> Answer:
    measured = (row for path in options.files for row in read(path)[1])
    rows = gains.hit_rows(row for row in measured if row.items() >= HITS_OF.items())
    if not rows:
        raise ValueError(f"no row of {', '.join(map(str, options.files))} has {HITS_OF}")
    names = "predictor nodes rule context hit_rate tokens_per_step projected tokens_per_s over_tp over_misses"
    return rows, f"{table(rows, names)}\n\nassuming that\n{_listed(gains.HITS_ASSUMPTIONS)}"


def _layers(options: argparse.Namespace) -> Answer:
    rows = [row for path in options.files for row in gains.layer_rows(read(path)[1])]
    return rows, table(rows, "context hit_rate gain formula_gain")


def _prefill(options: argparse.Namespace) -> Answer:
    rows = prefill.rows_of(prefill.TOKENS, CHIP_COUNTS)
    names = f"chips tokens {' '.join(prefill.PARTS)} ms tokens_per_s of_peak published of_published"
    return rows, f"{table(rows, names)}\n\nmilliseconds, assuming that\n{_listed(prefill.ASSUMPTIONS)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0; 2 with one line for values that make no sense, or files that hold too little."""
    questions = Questions("python -m perf.projection", __doc__)
    add = questions.add
    beside = add(
        "layouts", _layouts, "TP, a cache split over two rows, and speculation beside each other, by executed parts"
    )
    beside.add_argument("--plot", type=new_file, metavar="FILE", help="save the picture there (PNG, SVG, PDF)")
    add("prefill", _prefill, "a floor of the time to a prompt's first token by parts, beside published times")
    hits = add("hits", _hits, "what hit rates that perf.studies.quality measured are worth at long contexts")
    layers = add("layers", _layers, "what two layers that a pair executed (perf.step pair) make of a whole model")
    for question in (hits, layers):
        question.add_argument("files", nargs="+", type=Path, metavar="FILE", help="of perf/data or your own")
    return questions.run(argv, (ValueError,))


if __name__ == "__main__":
    sys.exit(main())
