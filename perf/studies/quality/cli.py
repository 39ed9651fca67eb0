# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure hit rates and quality, part by part, into CSV files; a stopped run is continued."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from loguru import logger
from tqdm import tqdm

from perf.lib.tables import Table
from runtime_patches.board.command_line import OneLineParser, run_command

from .inputs import Texts, add_torch_options, loaded_on, positive, threshold
from .parts import PARTS
from .study import Settings, Study, fill

PROG = "python -m perf.studies.quality"
TEXTS_VARIABLE = "LLAMA_ALSPEC_TEXTS"
LONG = ("chains", "trees")  # parts that take hours on a CPU, run when they are named
USUAL = tuple(part for part in PARTS if part not in LONG)
DEFAULTS = {
    "thresholds": (0.0, 0.05, 0.10, 0.15, 0.20, 0.25, float("inf")),
    "chunk_sizes": (64, 128, 256),
    "contexts": (1024, 2048),
    "windows": 2,
    "new_tokens": 64,
}
QUICK = {
    "thresholds": (0.0, 0.10, float("inf")),
    "chunk_sizes": (64,),
    "contexts": (256,),
    "windows": 1,
    "new_tokens": 8,
}


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; what is not given is taken from DEFAULTS, with --quick from QUICK."""
    parser = OneLineParser(prog=PROG, description=__doc__)
    add = parser.add_argument
    add(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=USUAL,
        help=f"what to measure (default: all but {', '.join(LONG)})",
    )
    add("--quick", action="store_true", help="few and short: under a minute on one quiet core")
    add("--model", help="Hugging Face folder or hub id, or .gguf file (default: SmolLM2-135M-Instruct)")
    add(
        "--data",
        type=Path,
        default=os.environ.get(TEXTS_VARIABLE) or None,
        help=f"folder with the book (default: ${TEXTS_VARIABLE}, else the project's own short story, as --quick always "
        "takes)",
    )
    add("--text", type=Path, metavar="FILE", help="a long text of your own, UTF-8, instead of the folder's book")
    add("--out", type=Path, help="folder of the results (default: generated/quality, with --quick quality_quick)")
    add("--thresholds", nargs="+", type=threshold, metavar="X", help="of the acceptance; inf accepts all")
    add("--chunk-sizes", nargs="+", type=positive, metavar="S", help="tokens the guess reads at either end")
    add("--contexts", nargs="+", type=positive, metavar="N", help="tokens of a text")
    add(
        "--tail-alignment",
        type=positive,
        default=32,
        help="the last keys begin at a multiple of it: 32 as on the device (default), 1 as in the paper",
    )
    add(
        "--predictors",
        nargs="+",
        default=("ends",),
        metavar="WORDS",
        help="what guesses read: ends (S first and S last keys, default), budget (32 first, S last and the tiles that "
        "held most of the attention weight), or parameters as 'own decay=0.5 budget=0.95' (predictors.py)",
    )
    add("--windows", type=positive, metavar="N", help="texts of each context")
    add("--new-tokens", type=positive, metavar="N", help="tokens of a generated text")
    add_torch_options(add)
    args = parser.parse_args(argv)
    for name, value in (QUICK if args.quick else DEFAULTS).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.quick and args.text:
        parser.error("--quick takes the project's own story; --text does not go with it")
    if args.out is None:
        args.out = Path("generated") / ("quality_quick" if args.quick else "quality")
    if set(args.predictors) != {"ends"} and args.tail_alignment != 32:
        parser.error("predictors other than ends read whole tiles of 32: no other --tail-alignment")
    try:
        settings = settings_of(args)
        for predictor in args.predictors:
            for size in args.chunk_sizes:
                settings.policy(0.0, size, predictor)
    except ValueError as error:
        parser.error(str(error))
    return args


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings that the options of the same names say."""
    given = {field.name: getattr(args, field.name) for field in fields(Settings)}
    return Settings(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})  # type: ignore[arg-type]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the output folder lacks; 0, or 2 with one line for what cannot be done."""
    args = parse_args(argv)
    return run_command(PROG, lambda: run(args), (ValueError,))


def run(args: argparse.Namespace) -> int:
    """Load, measure the parts one after the other, and say where the results are."""
    texts = Texts(None if args.quick or args.data is None else Path(args.data), args.text)
    texts.check()
    with loaded_on(args.torch_device, args.dtype, args.model) as loaded:
        study = Study(loaded, texts, settings_of(args))
        for name in args.parts:
            table = measure(name, study)
            logger.info("{}: {} rows in {}", name, len(table.rows()), table.path)
    return 0


def measure(name: str, study: Study) -> Table:
    """Measure what the file of a part lacks, and return it."""
    part = PARTS[name]
    table = Table(study.settings.out / f"{name}.csv", part.key, part.values)
    cells = list(part.cells(study))
    with tqdm(total=len(cells), desc=name, unit="cell", disable=not sys.stderr.isatty()) as bar:
        fill(table, cells, lambda: bar.update())
    return table
