# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Judge a layer of Llama 3.1 8B against torch on a ttsim library: a decode step, a prefill, and a piece of the LM head.

One layer of full size with random weights decodes a token over a cache of random numbers on 64 cores, then prefills a
prompt. What leaves the layer is judged after the final norm, and so is one of the equal pieces of the LM head, against
torch with the weights as the chip holds them ("held") and as they were before ("given"). ttsim counts no cycles.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from models.llama31_8b.config import preset
from models.llama31_8b.tt.precision import PrecisionConfig, precision_config
from models.llama31_8b.tt.sharding import DECODE_SHARDINGS
from perf.lib.chip import Chip, measure_apart, ttsim_library
from perf.lib.data_file import Row, markdown
from perf.step.shapes import FULL_GRID, head_pieces
from runtime_patches.simulated_n150.library import version

# ttsim refuses the float32 sums of the third, bfloat16.
PRECISIONS = ("performance", "accuracy")
CONTEXT, PROMPT = 1024, 128
TIMEOUT_S = 3 * 3600


def run(library: Path, precision: str, sharding: str) -> dict[str, Any]:
    """Return `layer_device.judge_layer` of a layer of Llama 3.1 8B, in a process of its own. Raises SystemExit with
    what went wrong there."""
    asked = {"work": "values", "asked": {"precision": precision, "sharding": sharding}}
    return measure_apart("perf.step", asked, Chip(FULL_GRID, library=library).environment(), TIMEOUT_S)


def work(precision: str, sharding: str) -> dict[str, Any]:
    from models.llama31_8b.tt.mesh import MeshShape
    from perf.step.layer_device import judge_layer
    from runtime_patches.simulated_n150.dispatch import program_room

    config = preset("llama-3.1-8b")
    one = replace(config.with_layers(1), vocab_size=config.vocab_size // head_pieces(config))
    layer = precision_config(precision, config.num_hidden_layers).of_layer(0)
    plan = MeshShape(1, 1)
    mesh = plan.open(**program_room())
    try:
        return judge_layer(mesh, one, PrecisionConfig(precision, layer), sharding, CONTEXT, PROMPT)
    finally:
        plan.close(mesh)


def rows_of(found: dict[str, Any], precision: str, sharding: str) -> list[Row]:
    """Return a row for the layer and for the logits of each kind of pass."""
    tokens = {"decode": f"1 after {CONTEXT - 1}", "prefill": str(PROMPT)}
    head = {"precision": precision, "sharding": sharding}
    return [
        head | {"pass": name, "tokens": tokens[name], "of": what} | errors
        for name, values in found.items()
        for what, errors in values.items()
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--simulator", required=True, metavar="PATH", help="a ttsim library (libttsim_wh.so)")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--shardings", nargs="+", choices=DECODE_SHARDINGS, default=list(DECODE_SHARDINGS))


def answer(options: argparse.Namespace) -> tuple[list[Row], str]:
    """Return the rows of each format and sharding. Raises ValueError for a library that is not there."""
    library, rows = ttsim_library(options.simulator), []
    for precision, sharding in product(options.precisions, options.shardings):
        rows += rows_of(run(library, precision, sharding), precision, sharding)
    options.facts = {"ttsim_sha256": version(library)}
    return rows, markdown(rows)
