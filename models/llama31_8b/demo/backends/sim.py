# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device sim`: start the demo again, on simulated N150, where it runs the code of `--device n150`.

With --simulator a library of Tenstorrent's ttsim simulates one chip, which is fast enough for the default model.
Otherwise, without --model, the model is a tiny random Llama over bytes, written into the cache: its text is nonsense,
but a step takes seconds in place of hours. `--draft tiny` names a draft model for it: its own first layer, and with
--fuzzy the whole of it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

from runtime_patches.board.runtime_root import project_cache_dir

from ... import tiny
from ...checkpoint.cache import made_once
from ...config import LlamaConfig
from ...simulated import SimulatorError, command
from ...simulated import run as run_command
from ...tt.mesh import MeshShape
from ...tt.sharding import GRID as WHOLE
from ..options import DemoOptions, UserError, named, piped_text

# For the tiny model: few tokens, and a guess small enough that a prompt of a sentence is longer than both of its ends.
TOKENS = 8
CHUNK_SIZE = 32
SENTENCE = "The tides are caused by the moon. " * 3
MAX_PARALLEL = 4  # layers of a draft that run at once
# Columns and rows of cores. Joining heads takes a core per query head, sums over a TP group take eight; sharded decode
# steps take the whole chip, which has cores beside its DRAM banks.
GRIDS = ((4, 2), (4, 3), (4, 4), (8, 4), WHOLE)


def with_defaults(options: DemoOptions) -> DemoOptions:
    """Return the options of a simulated run with its own defaults: a pair for alspec, short guesses, few tokens."""
    given, changes = options.given, dict[str, Any]()
    one_chip = options.simulator is not None
    if "mesh" not in given and not os.environ.get("MESH_DEVICE") and options.attention == "alspec" and not one_chip:
        changes["mesh"] = "2x1"
    if "max_new_tokens" not in given:
        changes["max_new_tokens"] = TOKENS
    if "chunk_size" not in given and options.model is None and not one_chip:
        changes["chunk_size"] = CHUNK_SIZE
    return replace(options, **changes)


def run(options: DemoOptions) -> int:
    """Run the demo on simulated chips; return its exit code. Raises UserError, and what `resolve_source` raises."""
    with named("--device sim: "):
        mesh = MeshShape.choose(options.mesh)
    if options.simulator is not None and mesh.shape != (1, 1):
        raise UserError(f"--simulator simulates one chip, got --mesh {mesh}")
    if options.simulator is not None and options.precision == "bfloat16":
        raise UserError(
            "--simulator: ttsim refuses the float32 sums of --precision bfloat16; performance and accuracy run"
        )
    given = options.given - {"simulator"}
    chosen = replace(options, device="n150", mesh=str(mesh), simulator=None, given=given)
    chats = sys.stdin is not None and sys.stdin.isatty() and not options.json
    if not options.prompts_given and not chats:
        chosen = replace(chosen, prompt=(piped_text().strip() or SENTENCE,))
    heads = tiny.TINY.num_attention_heads
    if options.model is None and options.simulator is None:
        chosen = _with_tiny_model(chosen, mesh)
    else:
        heads = _heads(options) // mesh.tp
    grid = WHOLE if options.decode_sharding == "sharded" else next(g for g in GRIDS if g[0] * g[1] >= heads)
    program = [sys.executable, "-m", "models.llama31_8b.demo", *chosen.arguments()]
    started = command(program, mesh.shape, "x".join(map(str, grid)), library=options.simulator)
    with named("--device sim: ", SimulatorError):
        return run_command(started, talks=not chosen.prompts_given)


def _heads(options: DemoOptions) -> int:
    """Return the query heads of the checkpoint. Raises UserError where all its layers would take hours."""
    from ...checkpoint.load import read_config, resolve_source

    if options.layers is None and options.simulator is None:
        raise UserError("--device sim takes minutes per layer: give --layers, such as --layers 2, with --model")
    return read_config(resolve_source(options.model)[0]).num_attention_heads


def _with_tiny_model(options: DemoOptions, mesh: MeshShape) -> DemoOptions:
    """Return the options with the folder of a tiny model, and that of its draft for --draft tiny. Raises UserError."""
    if options.layers is not None:
        raise UserError("--layers is how many layers of a model are run; give --model")
    fuzzy = options.fuzzy or 1
    if fuzzy > MAX_PARALLEL:
        raise UserError(f"--fuzzy: the tiny model is made for up to {MAX_PARALLEL} layers in parallel, got {fuzzy}")
    config = tiny.of_bytes(mesh.tp, **({"num_hidden_layers": fuzzy + 2} if fuzzy > 1 else {}))
    chosen = replace(options, model=_folder(config))
    if options.draft != "tiny":
        return chosen
    return replace(chosen, draft=chosen.model if fuzzy > 1 else _folder(config, 1))


def _folder(config: LlamaConfig, layers: int | None = None) -> str:
    """Return the folder of a tiny checkpoint in the cache; it is written once. layers: as of `write_checkpoint`."""
    shape = "-".join(str(part) for part in (config.hidden_size, config.num_hidden_layers, config.num_attention_heads))
    entry = project_cache_dir() / "tiny" / (f"tiny-{shape}" + ("" if layers is None else f"-first-{layers}"))

    return str(made_once(entry, lambda folder: tiny.write_checkpoint(folder, config, layers)))
