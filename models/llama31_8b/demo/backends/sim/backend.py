# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device sim`: the TT-NN path on simulated N150, a tiny random Llama or a few layers of a model, checked step by
step.

The steps run in their own process (`steps.py`), in the simulator's environment, which ttnn reads when it is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from loguru import logger

from ....config import LlamaConfig
from ....tiny import TINY, tiny_for
from ....tt.mesh import TILE, MeshError, MeshShape
from ....tt.precision import PrecisionError, precision_config
from ....tt.settings import SpeculationError, check_chunk_size, check_speculation, followed_range
from ....tt.sharding import GRID as WHOLE_GRID
from ....tt.sharding import ShardedDecodeConfig, ShardingError
from ...options import ATTENTIONS, DemoOptions, UserError
from ...support import CHIP_DRAFTING, CHIP_DRAFTS_REFUSE, DECODE_SHARDING, Support, chip_tree_nodes, layer_parallel

# Cached positions and prompt tokens of a run with exact attention; a guess needs two chunks to begin with.
CAPACITY, PROMPT_TOKENS = 128, 40
MAX_POSITIONS = TINY.max_position_embeddings
DEFAULT_TOKENS, DRAFTED_TOKENS = (
    3,
    8,
)  # a step takes seconds; drafts are accepted once the text repeats itself
CHUNK_SIZE, FOLLOWED_CHUNK_SIZE = 32, 64
MAX_PARALLEL = 4  # layers of a draft; each takes the simulator seconds a step
PRECISION = "accuracy"
_CHECKED = "a few steps are checked one by one against the reference"
SUPPORT = Support(
    device="sim",
    what="a tiny random model, or --layers of a model, in TT-NN on simulated N150, checked step by step",
    default_attention="exact",
    attention={name: None for name in ATTENTIONS},
    drafting=CHIP_DRAFTING,
    drafts_refuse={
        **CHIP_DRAFTS_REFUSE,
        "adapt": "drafts have their full length here: a simulator's times say nothing",
    },
    chat=_CHECKED,
    prompts=_CHECKED,
    refused=dict.fromkeys(
        ("stop", "chat_template", "max_context", "top_k", "top_p", "sample_on", "html"),
        _CHECKED,
    ),
    reads_prompt=False,
    seeds_weights=True,
)


def run(options: DemoOptions, texts: Sequence[str] | None = None) -> int:
    """Check `max_new_tokens` tokens, by default a few; return the exit code. Raises UserError for what cannot be
    simulated."""
    from runtime_patches import sgdc
    from runtime_patches.board.runtime_root import RuntimeRootError
    from runtime_patches.simulated_n150 import doctor
    from runtime_patches.simulated_n150.environment import process_environment, simulated_environment

    request = plan_request(options)
    if reason := doctor.why_not("simulator"):
        raise UserError(f"--device sim: {reason}")
    mesh = MeshShape.parse(request["mesh"])
    try:
        shape = mesh.shape if mesh.chips > 1 else None
        environment = process_environment(
            simulated_environment(request["grid"], sgdc.overlays(), mesh=shape, dispatch=request["dispatch"])
        )
        environment["TT_LOGGER_LEVEL"] = os.environ.get("TT_LOGGER_LEVEL", "ERROR")
    except RuntimeRootError as error:
        raise UserError(f"--device sim: {error}") from error
    if request["tokens"] != options.max_new_tokens:
        logger.info("--device sim checks {} tokens unless --max-new-tokens says otherwise", request["tokens"])
    module = __spec__.name.rpartition(".")[0] + ".steps"
    command = [sys.executable, "-m", module, json.dumps(request)]
    root = Path(__file__).resolve().parents[5]
    return subprocess.run(command, env=environment, cwd=root, check=False).returncode


def plan_request(options: DemoOptions) -> dict:
    """Return the checked request for `steps`. Raises UserError."""
    attention = str(options.attention)
    mesh = _mesh(options, attention)
    config = _config(options, mesh)
    precision = options.precision or PRECISION
    nodes, decode_sharding = chip_tree_nodes(options), options.decode_sharding or DECODE_SHARDING
    if options.draft_kind == "model" and (options.drafter != TINY.name or options.model is not None):
        target = "" if options.model is None else f" for {options.model}"
        raise UserError(
            f"--device sim has one draft model: --draft {TINY.name}, the first layer of the tiny random model for the "
            f"whole of it, with --fuzzy the whole of it for itself; got --draft {options.drafter}{target}"
        )
    if options.temperature and not nodes:
        raise UserError(f"--temperature does not go with --device sim unless --draft is given: {_CHECKED}")
    default = DRAFTED_TOKENS if nodes else DEFAULT_TOKENS
    tokens = options.max_new_tokens if "max_new_tokens" in options.given else default
    default_chunk = CHUNK_SIZE if options.predictor == "ends" else FOLLOWED_CHUNK_SIZE
    chunk_size = options.chunk_size if "chunk_size" in options.given else default_chunk
    if attention == "exact" and "chunk_size" in options.given:
        raise UserError("--chunk-size is how many tokens a guess reads; this run has exact attention")
    # The first step is the first whose guess leaves keys out: the tail holds up to a tile more than a chunk.
    guessed = None if attention == "exact" else chunk_size
    if options.draft_kind == "self":
        guessed = max(CHUNK_SIZE, guessed or 0)
    prompt_tokens = PROMPT_TOKENS if guessed is None else 2 * guessed + TILE - 1
    wanted = prompt_tokens + tokens + nodes
    if wanted > MAX_POSITIONS:
        raise UserError(
            f"--device sim caches up to {MAX_POSITIONS} positions; a prompt of {prompt_tokens} tokens and "
            f"--max-new-tokens {tokens}{f' with trees of {nodes} nodes' if nodes else ''} need {wanted}"
        )
    capacity = max(CAPACITY, -(-wanted // 32) * 32)
    try:
        precision_config(precision, config.num_hidden_layers)
        mesh.check_model(config)
        layer_parallel(options, config, mesh)
        if decode_sharding == "sharded":
            ShardedDecodeConfig.of(config, mesh, users=1)
        if attention == "alspec":
            check_speculation(mesh, 1, capacity, chunk_size, options.threshold)
            if options.predictor == "followed":
                followed_range(chunk_size)
        elif attention != "exact":
            check_chunk_size(chunk_size, capacity)
    except (PrecisionError, MeshError, ShardingError, SpeculationError) as error:
        raise UserError(f"--device sim: {error}") from error
    options.check_static_layers(config.name, config.num_hidden_layers)
    return {
        "mesh": str(mesh),
        "grid": grid_for(config, mesh, guessed is not None, decode_sharding),
        "decode_sharding": decode_sharding,
        "dispatch": dispatch_of(decode_sharding),
        "tokens": tokens,
        "seed": options.seed,
        "temperature": options.temperature,
        "precision": precision,
        "attention": attention,
        "threshold": options.threshold,
        "chunk_size": chunk_size,
        "predictor": options.predictor,
        "static_layers": sorted(options.static_layer_set()),
        "model": options.model,
        "layers": options.layers,
        "prompt": _prompt(options),
        "json": options.json,
        "prompt_tokens": prompt_tokens,
        "capacity": capacity,
        "draft_length": options.draft_length,
        "nodes": nodes,
        "tree": options.tree,
        "draft": options.drafter,
        "fuzzy": options.fuzzy,
    }


def grid_for(config: LlamaConfig, mesh: MeshShape, guesses: bool, decode_sharding: str = "interleaved") -> str:
    """Return the compute cores per chip. guesses: guess kernels run too, which need at least three. Joining heads takes
    a core per query head, or per head of a whole layer for layer-parallel drafts; sums over a TP group take eight;
    sharded decode steps need a whole chip, which has cores beside its DRAM banks."""
    if decode_sharding == "sharded":
        return "x".join(map(str, WHOLE_GRID))
    from runtime_patches.simulated_n150.grids import smallest_grid

    if not guesses and mesh.tp > 1:
        return smallest_grid(max(config.num_attention_heads, 8), columns=4)
    return smallest_grid(max(config.num_attention_heads // mesh.tp, 4 if guesses else 1), columns=2)


def dispatch_of(decode_sharding: str) -> str:
    """Return the dispatch mode. Launching programs on 64 cores is several times faster from the chip's queues than from
    the host."""
    return "fast" if decode_sharding == "sharded" else "slow"


def _mesh(options: DemoOptions, attention: str) -> MeshShape:
    """Return the mesh of --mesh or $MESH_DEVICE, else one chip, or the smallest pair for alspec."""
    asked = options.mesh or os.environ.get("MESH_DEVICE")
    try:
        mesh = MeshShape.choose(options.mesh) if asked else MeshShape(2 if attention == "alspec" else 1, 1)
    except MeshError as error:
        raise UserError(f"--device sim: {error}") from error
    row = mesh.shape == (1, 2) and options.fuzzy is not None and options.draft_kind == "model"
    if mesh.chips > 1 and attention != "alspec" and not row:
        source = f"--mesh {options.mesh}" if options.mesh else f"MESH_DEVICE={os.environ['MESH_DEVICE']}"
        raise UserError(
            f"{source} does not go with --device sim and {attention} attention, which it runs on one chip, or on 1x2 "
            f"with --draft {TINY.name} --fuzzy N"
        )
    return mesh


def tiny_model(fuzzy: int | None, mesh: MeshShape) -> LlamaConfig:
    """Return the tiny random model's config, with enough layers for drafts of `fuzzy` parallel layers between the first
    and the last, and heads for each chip of a TP group."""
    layers = TINY.num_hidden_layers if fuzzy is None else max(TINY.num_hidden_layers, fuzzy + 2)
    return tiny_for(mesh.tp, num_hidden_layers=layers)


def _config(options: DemoOptions, mesh: MeshShape) -> LlamaConfig:
    """Return the config of the tiny model, or of the first layers of --model."""
    if options.model is None:
        if options.layers is not None:
            raise UserError("--layers is how many of a model's are run; give --model")
        if asked := options.flags("prompt", "prompt_file"):
            raise UserError(f"{asked[0]} needs --model: the tiny random model has no tokenizer")
        if options.fuzzy is None or options.draft_kind != "model":
            return TINY
        if options.fuzzy > MAX_PARALLEL:
            raise UserError(
                f"--device sim makes its tiny model for up to {MAX_PARALLEL} layers in parallel, got --fuzzy "
                f"{options.fuzzy}"
            )
        return tiny_model(options.fuzzy, mesh)
    from ....checkpoint.load import read_config, resolve_source

    if options.layers is None:
        raise UserError("--device sim takes minutes a layer: give --layers, such as --layers 2, with --model")
    folder, shown = resolve_source(options.model)
    config = read_config(folder, name=Path(shown).name)
    if options.layers > config.num_hidden_layers:
        raise UserError(f"--layers {options.layers}: {config.name} has {config.num_hidden_layers} layers")
    return config.with_layers(options.layers)


def _prompt(options: DemoOptions) -> str | None:
    """Return a text for a model's tokenizer, None for the tiny model's random tokens."""
    if options.model is None:
        return None
    if not options.prompts_given:
        return Path(__file__).parents[2].joinpath("sample_prompt.txt").read_text(encoding="utf-8")
    return next(iter(options.prompt_texts() or ()), None)
