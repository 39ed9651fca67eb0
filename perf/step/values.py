# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Judge a layer of Llama 3.1 8B against torch on a ttsim library: a decode step, a prefill, and a piece of the LM head.

One layer of full size with random weights decodes a token over a cache of random numbers on 64 cores, then prefills a
prompt. What leaves the layer is judged after the final norm, and so is one of the equal pieces of the LM head, against
torch with the weights as the chip holds them ("held") and as they were before ("given"). ttsim counts no cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from models.llama31_8b.config import PRESETS, LlamaConfig, RopeScaling, preset
from models.llama31_8b.tt.precision import LayerPrecision, PrecisionConfig, precision_config
from models.llama31_8b.tt.sharding import DECODE_SHARDINGS
from perf.lib.chip import ttsim_library
from perf.lib.data_file import add_write_option, write
from perf.lib.measuring_process import measure_apart
from perf.lib.tables import markdown
from perf.step.shapes import FULL_GRID, check_fits, head_pieces
from runtime_patches.board.command_line import OneLineParser
from runtime_patches.simulated_n150.environment import process_environment, simulated_environment
from runtime_patches.simulated_n150.library import version

# ttsim refuses the float32 sums of the third, bfloat16.
PRECISIONS = ("performance", "accuracy")
CONTEXT, PROMPT = 1024, 128
TIMEOUT_S = 3 * 3600


def run(library: Path, config: LlamaConfig, precision: str, sharding: str, context: int, prompt: int) -> dict[str, Any]:
    """Return `layer_device.judge_layer` of a layer of `config`, in a process of its own. Raises SystemExit with what
    went wrong there."""
    formats = precision_config(precision, config.num_hidden_layers)
    one = replace(config.with_layers(1), vocab_size=config.vocab_size // head_pieces(config))
    asked: dict[str, Any] = {"config": asdict(one)}
    asked |= {"precision": precision, "formats": vars(formats.of_layer(0)), "sharding": sharding}
    asked |= {"context": context, "prompt": prompt}
    environment = process_environment(simulated_environment(FULL_GRID, library=library))
    return measure_apart("perf.step", {"work": "values", "asked": asked}, environment, TIMEOUT_S)


def work(config: dict[str, Any], precision: str, formats: dict[str, str], **asked: Any) -> dict[str, Any]:
    """Judge in this process."""
    from models.llama31_8b.tt.mesh import MeshShape
    from perf.step.layer_device import judge_layer
    from runtime_patches.simulated_n150.dispatch import program_room

    shape = LlamaConfig(**config | {"rope_scaling": RopeScaling(**config["rope_scaling"])})
    plan = MeshShape(1, 1)
    mesh = plan.open(**program_room())
    try:
        return judge_layer(mesh, shape, PrecisionConfig(precision, LayerPrecision(**formats)), **asked)
    finally:
        plan.close(mesh)


def rows_of(found: dict[str, Any], precision: str, sharding: str, context: int, prompt: int) -> list[dict[str, Any]]:
    """Return a row for the layer and for the logits of each kind of pass."""
    tokens = {"decode": f"1 after {context - 1}", "prefill": str(prompt)}
    head = {"precision": precision, "sharding": sharding}
    return [
        head | {"pass": name, "tokens": tokens[name], "of": what} | errors
        for name, values in found.items()
        for what, errors in values.items()
    ]


def main(argv: Sequence[str]) -> int:
    """Return 0; 2 for what cannot be judged, before any work."""
    parser = OneLineParser(prog="python -m perf.step values", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--simulator", required=True, metavar="PATH", help="a ttsim library (libttsim_wh.so)")
    parser.add_argument("--model", choices=sorted(PRESETS), default="llama-3.1-8b")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--shardings", nargs="+", choices=DECODE_SHARDINGS, default=list(DECODE_SHARDINGS))
    parser.add_argument("--context", type=int, default=CONTEXT, metavar="TOKENS", help="(default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=PROMPT, metavar="TOKENS", help="(default: %(default)s)")
    add_write_option(parser)
    options = parser.parse_args(argv)
    config = preset(options.model)
    try:
        head_pieces(config)
        for sharding in options.shardings:
            check_fits(config, options.context, sharding)
        if not 0 < options.prompt <= options.context:
            raise ValueError(f"--prompt must be 1 to {options.context}, the context, got {options.prompt}")
        library = ttsim_library(options.simulator)
    except ValueError as error:
        parser.error(str(error))
    rows = []
    for precision in options.precisions:
        for sharding in options.shardings:
            asked = (precision, sharding, options.context, options.prompt)
            rows += rows_of(run(library, config, *asked), *asked)
    if options.write:
        named = [library.name if word == options.simulator else word for word in argv]
        write(options.write, parser, named, rows, ttsim_sha256=version(library))
    print(markdown(rows))
    return 0
