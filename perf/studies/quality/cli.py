# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure hit rates and quality, part by part, into CSV files; a stopped run is continued."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from loguru import logger
from tqdm import tqdm

from models.llama31_8b.reference.alspec.acceptance import check_threshold
from perf.lib.tables import Table
from perf.studies.quality.torch_device import add_torch_options, loaded_on

from . import baselines, chains, divergence, needle, perplexity, predictors, questions, switches, trees
from .study import GUESSES, Settings, Study, fill
from .texts import Texts

TEXTS_VARIABLE = "LLAMA_ALSPEC_TEXTS"
PARTS = {
    "perplexity": perplexity,
    "baselines": baselines,
    "predictors": predictors,
    "switches": switches,
    "chains": chains,
    "trees": trees,
    "divergence": divergence,
    "needle": needle,
    "questions": questions,
}
LONG = ("switches", "chains", "trees")  # parts that take hours on a CPU, run when they are named
USUAL = tuple(part for part in PARTS if part not in LONG)
QUESTIONS = "questions"  # the part that needs more than a long text
# Drawn from what is in the output folder, whatever run measured it.
PICTURES = "pictures"
DEFAULTS = {
    "thresholds": (0.0, 0.05, 0.10, 0.15, 0.20, 0.25, float("inf")),
    "chunk_sizes": (64, 128, 256),
    "contexts": (1024, 2048),
    "windows": 2,
    "questions": 24,
    "hashes": 7,
    "new_tokens": 64,
}
QUICK = {
    "thresholds": (0.0, 0.10, float("inf")),
    "chunk_sizes": (64,),
    "contexts": (256,),
    "windows": 1,
    "questions": 2,
    "hashes": 1,
    "new_tokens": 8,
}


def _threshold(text: str) -> float:
    try:
        return check_threshold(float(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be a number >= 0 or inf, got {text!r}") from error


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return value


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; what is not given is taken from DEFAULTS, with --quick from QUICK."""
    parser = argparse.ArgumentParser(prog="python -m perf.studies.quality", description=__doc__)
    add = parser.add_argument
    add(
        "--parts",
        nargs="+",
        choices=(*PARTS, PICTURES),
        help=f"what to measure (default: all but {', '.join(LONG)}; with --text neither questions)",
    )
    add("--quick", action="store_true", help="few and short: under a minute on one quiet core")
    add("--model", help="Hugging Face folder or hub id, or .gguf file (default: SmolLM2-135M-Instruct)")
    add(
        "--data",
        type=Path,
        default=os.environ.get(TEXTS_VARIABLE) or None,
        help=f"folder with the book, GSM8K and Spec-Bench (default: ${TEXTS_VARIABLE}, else the project's own short "
        "texts, as --quick always takes)",
    )
    add("--text", type=Path, metavar="FILE", help="a long text of your own, UTF-8, instead of the folder's book")
    add(
        "--out",
        type=Path,
        help="folder of the results (default: generated/quality, with --quick quality_quick)",
    )
    add("--thresholds", nargs="+", type=_threshold, metavar="X", help="of the acceptance; inf accepts all")
    add("--chunk-sizes", nargs="+", type=_positive, metavar="S", help="tokens the guess reads at either end")
    add("--contexts", nargs="+", type=_positive, metavar="N", help="tokens of a text")
    add(
        "--tail-alignment",
        type=_positive,
        default=32,
        help="the last keys begin at a multiple of it: 32 as on the device (default), 1 as in the paper",
    )
    add("--short-tail", action="store_true", help="tails of S - 31 to S keys instead of S to S + 31")
    add(
        "--predictor",
        choices=GUESSES,
        default="ends",
        help="what guesses read: S first and S last tokens (ends, default), or 32 first ones, S last ones and tiles on "
        "which the layer's attention lay one token before (followed)",
    )
    add("--windows", type=_positive, metavar="N", help="texts of each context")
    add("--questions", type=_positive, metavar="N", help="questions of each set")
    add("--hashes", type=_positive, metavar="N", help="needles that are hashes, beside three facts")
    add("--new-tokens", type=_positive, metavar="N", help="tokens of a generated text")
    add_torch_options(add)
    add("--seed", type=int, default=0, help="of what is drawn: needles, their places, the bootstrap")
    args = parser.parse_args(argv)
    for name, value in (QUICK if args.quick else DEFAULTS).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.quick and args.text:
        parser.error("--quick takes the project's own texts; --text does not go with it")
    if args.parts is None:
        args.parts = [part for part in (*USUAL, PICTURES) if not (args.text and part == QUESTIONS)]
    if args.out is None:
        args.out = Path("generated") / ("quality_quick" if args.quick else "quality")
    for size in args.chunk_sizes:
        if size % args.tail_alignment:
            parser.error(f"chunk size {size} is not a multiple of --tail-alignment {args.tail_alignment}")
    if args.short_tail and args.tail_alignment == 1:
        parser.error("--short-tail with --tail-alignment 1 would change nothing")
    if args.predictor == "followed":
        if args.short_tail or args.tail_alignment != 32:
            parser.error("--predictor followed reads whole tiles of 32: no --short-tail, no other --tail-alignment")
        if wrong := [size for size in args.chunk_sizes if size % 32 or size == 32]:
            parser.error(f"--predictor followed takes chunk sizes that are multiples of 32 above 32, got {wrong}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the output folder lacks; 0, or 2 with one line for what cannot be done."""
    args = parse_args(argv)
    try:
        return run(args)
    except (ValueError, OSError) as error:
        print(f"perf.studies.quality: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def settings_of(args: argparse.Namespace) -> Settings:
    return Settings(
        out=args.out,
        thresholds=tuple(args.thresholds),
        chunk_sizes=tuple(args.chunk_sizes),
        contexts=tuple(args.contexts),
        tail_alignment=args.tail_alignment,
        short_tail=args.short_tail,
        windows=args.windows,
        questions=args.questions,
        hashes=args.hashes,
        new_tokens=args.new_tokens,
        seed=args.seed,
        predictor=args.predictor,
    )


def run(args: argparse.Namespace) -> int:
    """Load, measure the parts one after the other, and say where the results are."""
    settings = settings_of(args)
    texts = Texts(None if args.quick or args.data is None else Path(args.data), args.text)
    texts.check(QUESTIONS in args.parts)
    with loaded_on(args.torch_device, args.dtype, args.model) as loaded:
        return measure(args.parts, Study(loaded, texts, settings))


def measure(parts: Sequence[str], study: Study) -> int:
    """Measure these parts of a study; 0."""
    settings = study.settings
    for name in (name for name in parts if name != PICTURES):
        part = PARTS[name]
        table = Table(settings.out / f"{name}.csv", part.KEY, part.VALUES)
        cells = list(part.cells(study))
        with tqdm(total=len(cells), desc=name, unit="cell", disable=not sys.stderr.isatty()) as bar:
            fill(table, cells, lambda: bar.update())
        logger.info("{}: {} rows in {}", name, len(table.rows()), table.path)
        if name == QUESTIONS:
            summarise(table, settings)
    if PICTURES in parts:
        from .pictures import draw  # matplotlib takes a second to import

        measured = {path.stem: path for path in settings.out.glob("*.csv")}
        tables = {
            name: Table(measured[name], part.KEY, part.VALUES) for name, part in PARTS.items() if name in measured
        }
        for file in draw(study, tables):
            logger.info("drawn: {}", file)
    return 0


def summarise(table: Table, settings: Settings) -> None:
    """Write accuracy.csv anew: the questions measured so far, with their intervals."""
    path = settings.out / "accuracy.csv"
    path.unlink(missing_ok=True)
    Table(path, questions.ACCURACY, questions.INTERVALS).append(questions.accuracy(table.rows(), settings.seed))
