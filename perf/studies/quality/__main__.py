# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure what attention-level speculation costs in quality, and how often it hits, on the CPU or a GPU.

Part by part, into CSV files; a stopped run is continued.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from loguru import logger
from tqdm import tqdm

from models.llama31_8b.reference.alspec.acceptance import check_threshold
from models.llama31_8b.reference.load import load_model
from perf.lib.data_file import Table
from runtime_patches.board.command_line import OneLineParser, run_command

from .parts import PARTS
from .study import KEYS, Settings, Study, Texts

PROG = "python -m perf.studies.quality"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TEXTS_VARIABLE = "LLAMA_ALSPEC_TEXTS"
LONG = ("chains", "trees")  # parts that take hours on a CPU, run when they are named
USUAL = tuple(part for part in PARTS if part not in LONG)
DEFAULTS = {
    "thresholds": (0.0, 0.05, 0.10, 0.15, 0.20, 0.25, float("inf")),
    **{"chunk_sizes": (64, 128, 256), "contexts": (1024, 2048), "windows": 2, "new_tokens": 64},
}
QUICK = {
    "thresholds": (0.0, 0.10, float("inf")),
    **{"chunk_sizes": (64,), "contexts": (256,), "windows": 1, "new_tokens": 8},
}


def torch_device(text: str) -> torch.device:
    """Return the device of that name. Raises argparse.ArgumentTypeError for one that is not here."""
    try:
        device = torch.device(text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"must be cpu, cuda or cuda:N, got {text!r}") from error
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if device.type not in ("cpu", "cuda") or (device.index or 0) >= count:
        raise argparse.ArgumentTypeError(f"{text!r} is not here: torch sees {torch.cuda.device_count()} CUDA devices")
    return device


def threshold(text: str) -> float:
    """Return an acceptance threshold, for argparse's `type=`."""
    try:
        return check_threshold(float(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be a number >= 0 or inf, got {text!r}") from error


def positive(text: str) -> int:
    """Return a whole number of at least 1, for argparse's `type=`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def parse_args(argv: Sequence[str] | None = None) -> Settings:
    """Return the options; what is not given is taken from DEFAULTS, with --quick from QUICK."""
    parser = OneLineParser(prog=PROG, description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    text = f"what to measure (default: all but {', '.join(LONG)})"
    add("--parts", nargs="+", choices=PARTS, default=USUAL, help=text)
    add("--quick", action="store_true", help="few and short: under a minute on one quiet core")
    add("--model", help="Hugging Face folder or hub id, or .gguf file (default: SmolLM2-135M-Instruct)")
    text = f"folder with the book (default: ${TEXTS_VARIABLE}, else our own short story, as --quick always takes)"
    add("--data", type=Path, default=os.environ.get(TEXTS_VARIABLE) or None, help=text)
    add("--text", type=Path, metavar="FILE", help="a long text of your own, UTF-8, instead of the folder's book")
    add("--out", type=Path, help="folder of the results (default: generated/quality, with --quick quality_quick)")
    add("--thresholds", nargs="+", type=threshold, metavar="X", help="of the acceptance; inf accepts all")
    add("--chunk-sizes", nargs="+", type=positive, metavar="S", help="tokens the guess reads at either end")
    add("--contexts", nargs="+", type=positive, metavar="N", help="tokens of a text")
    text = "the last keys begin at a multiple of it: 32 as on the device (default), 1 as in the paper"
    add("--tail-alignment", type=positive, default=32, help=text)
    text = (
        "what guesses read: ends (S first and S last keys, default), budget (32 first, S last and the tiles that held "
        "most of the attention weight), or parameters as 'own decay=0.5 budget=0.95' (predictors.py)"
    )
    add("--predictors", nargs="+", default=["ends"], metavar="WORDS", help=text)
    add("--windows", type=positive, metavar="N", help="texts of each context")
    add("--torch-device", type=torch_device, default="cpu", metavar="DEVICE", help="cpu, cuda or cuda:N (cpu)")
    add("--dtype", choices=DTYPES, default="float32", help="of weights and activations (float32)")
    settings = parser.parse_args(argv, Settings())
    for name, value in (QUICK if settings.quick else DEFAULTS).items():
        if getattr(settings, name, None) is None:
            setattr(settings, name, value)
    if settings.quick and settings.text:
        parser.error("--quick takes the project's own story; --text does not go with it")
    if settings.out is None:
        settings.out = Path("generated") / ("quality_quick" if settings.quick else "quality")
    if set(settings.predictors) != {"ends"} and settings.tail_alignment != 32:
        parser.error("predictors other than ends read whole tiles of 32: no other --tail-alignment")
    try:
        for predictor, size in product(settings.predictors, settings.chunk_sizes):
            settings.policy(0.0, size, predictor)
    except ValueError as error:
        parser.error(str(error))
    return settings


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the output folder lacks; 0, or 2 with one line for what cannot be done."""
    settings = parse_args(argv)
    return run_command(PROG, lambda: run(settings), (ValueError,))


def run(settings: Settings) -> int:
    """Load, measure the parts one after the other, and say where the results are."""
    texts = Texts(None if settings.quick or settings.data is None else Path(settings.data), settings.text)
    texts.book()  # one that is missing is refused before the model is loaded
    with torch.device(settings.torch_device):
        loaded = load_model(settings.model, DTYPES[settings.dtype], device=settings.torch_device)
        if settings.dtype != "float32":
            config = replace(loaded.config, name=f"{loaded.config.name} {settings.dtype}")
            loaded = replace(loaded, config=config)
        study = Study(loaded, texts, settings)
        for name in settings.parts:
            table = measure(name, study)
            logger.info("{}: {} rows in {}", name, len(table.rows), table.path)
    return 0


def measure(name: str, study: Study) -> Table:
    """Measure what the file of a part lacks, cell by cell, and return it; the column `seconds` is a cell's time."""
    part = PARTS[name]
    table = Table(study.settings.out / f"{name}.csv", (*KEYS, *part.key), (*part.values, "seconds"))
    for cell in tqdm(list(part.cells(study)), desc=name, unit="cell", disable=not sys.stderr.isatty()):
        if not table.has(cell.key):
            start = time.perf_counter()
            measured = cell.measure()
            seconds = round(time.perf_counter() - start, 1)
            rows = measured if isinstance(measured, list) else [measured]
            table.append([{**cell.key, **row, "seconds": seconds} for row in rows])
    return table


if __name__ == "__main__":
    sys.exit(main())
