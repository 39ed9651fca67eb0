# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device sim`: the TT-NN path on the simulated N150 with a tiny random Llama, checked step by step.

`run` starts this file as a process of its own, in the simulator's environment, which ttnn reads when it is
imported.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from loguru import logger

from ...config import LlamaConfig, RopeScaling
from ...tt.mesh import MeshError, MeshPlan
from ...tt.precision import PrecisionError, precision_plan
from ..options import DemoOptions, UserError
from ..support import Support

GRID = "2x1"  # a core for each query head
CAPACITY, CHUNK, PROMPT_TOKENS = 128, 32, 40
MOST_TOKENS = CAPACITY - PROMPT_TOKENS
DEFAULT_TOKENS = 3  # a step takes seconds
PRECISION = "accuracy"
# Rounding the weights of a random gated MLP to bfloat4_b leaves a PCC of 0.987 by itself.
LEAST_PCC, LEAST_PCC_OF_FOUR_BITS = 0.99, 0.95
_TINY = "a tiny random Llama is checked step by step against the reference"
_EXACT = "the simulated chip runs exact attention"
SUPPORT = Support(
    device="sim",
    what="a tiny random model in TT-NN on the simulated N150, checked step by step",
    default_attention="exact",
    attention={"exact": None, "sink": _EXACT, "static": _EXACT, "alspec": _EXACT},
    drafting=_TINY,
    chat=_TINY,
    refused=dict.fromkeys(
        ("prompt", "prompt_file", "model", "json", "stop", "chat_template", "max_context", "temperature", "top_k",
         "top_p", "sample_on", "chunk_size", "tail_alignment"), _TINY
    ),
    reads_prompt=False,
    seeds_weights=True,
)  # fmt: skip
TINY = LlamaConfig(
    vocab_size=96,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=64,
    max_position_embeddings=256,
    rope_scaling=RopeScaling("llama3", factor=8.0, original_max_position_embeddings=64),
    name="tiny",
)


def run(options: DemoOptions, text: str | None = None) -> int:
    """Check `max_new_tokens` tokens, by default a few; the exit code. Raises UserError for what cannot be simulated."""
    from runtime_patches import sgdc
    from runtime_patches.runtime_root import RuntimeRootError
    from runtime_patches.simulated_n150 import doctor
    from runtime_patches.simulated_n150.environment import process_environment, simulated_environment

    try:
        mesh = MeshPlan.choose(options.mesh)
    except MeshError as error:
        raise UserError(f"--device sim: {error}") from error
    if mesh.chips > 1:
        source = f"--mesh {options.mesh}" if options.mesh else f"MESH_DEVICE={os.environ['MESH_DEVICE']}"
        raise UserError(f"{source} does not go with --device sim, which has one chip")
    precision = options.precision or PRECISION
    try:
        precision_plan(precision, TINY.num_hidden_layers, options.precision_overrides)
    except PrecisionError as error:
        raise UserError(f"--device sim: {error}") from error
    tokens = options.max_new_tokens if "max_new_tokens" in options.given else DEFAULT_TOKENS
    if tokens > MOST_TOKENS:
        raise UserError(f"--device sim takes --max-new-tokens up to {MOST_TOKENS}, got {tokens}")
    if reason := doctor.why_not("simulator"):
        raise UserError(f"--device sim: {reason}")
    try:
        environment = process_environment(simulated_environment(GRID, sgdc.overlays()))
        environment["TT_LOGGER_LEVEL"] = os.environ.get("TT_LOGGER_LEVEL", "ERROR")
    except RuntimeRootError as error:
        raise UserError(f"--device sim: {error}") from error
    if tokens != options.max_new_tokens:
        logger.info("--device sim checks {} tokens unless --max-new-tokens says otherwise", tokens)
    command = [sys.executable, "-m", __spec__.name, str(tokens), str(options.seed), precision]
    if options.precision_overrides is not None:
        command.append(os.path.abspath(options.precision_overrides))
    root = Path(__file__).resolve().parents[4]
    return subprocess.run(command, env=environment, cwd=root, check=False).returncode


def main(arguments: list[str]) -> int:
    """In the simulator's environment: prefill, then greedy steps, beside the reference. 0 when all agree."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("tokens", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("precision")
    parser.add_argument("overrides", nargs="?")
    options = parser.parse_args(arguments)
    import torch
    import ttnn

    from models.llama31_8b.reference.model.model import ReferenceLlama
    from models.llama31_8b.reference.model.random_weights import random_state_dict
    from runtime_patches.simulated_n150.environment import KERNEL_BYTES

    from ...tt.model import TtLlama, read
    from ...tt.weight_map import WeightMap
    from ...tt.weight_store import WeightStore

    precision = precision_plan(options.precision, TINY.num_hidden_layers, options.overrides)
    plan, state = MeshPlan(), random_state_dict(TINY, options.seed)
    reference = ReferenceLlama.from_state_dict(TINY, state)
    generator = torch.Generator().manual_seed(options.seed)
    prompt = torch.randint(0, TINY.vocab_size, (PROMPT_TOKENS,), generator=generator).tolist()
    device = ttnn.open_device(
        device_id=0, worker_l1_size=ttnn.device.get_max_worker_l1_unreserved_size() - KERNEL_BYTES
    )
    try:
        print(
            f"simulated N150, {GRID} cores: {TINY.num_hidden_layers} layers, hidden {TINY.hidden_size}, "
            f"random weights, {precision.name} precision, a random prompt of {PROMPT_TOKENS} tokens; "
            "exact attention, steps run eagerly (the simulator replays no traces)",
            flush=True,
        )
        weights, store = WeightMap(TINY, state, plan), WeightStore(device, plan)
        model = TtLlama(device, plan, TINY, precision, weights, store, capacity=CAPACITY)
        cache = reference.new_cache(1, CAPACITY)
        expected = reference.prefill([prompt], cache)[0]
        for start in range(0, PROMPT_TOKENS, CHUNK):
            part = prompt[start : start + CHUNK]
            logits = model.prefill(part, 0, start, last=start + CHUNK >= PROMPT_TOKENS)
        got = read(logits)[0, 0, (PROMPT_TOKENS - 1) % 32].float()
        found = [_show("prefill", got, expected)]
        for step in range(options.tokens - 1):
            # Both go on with the device's token, so that a near-tie does not part them.
            token = int(got.argmax())
            expected = reference.forward(torch.tensor([[token]]), cache)[0, 0]
            got = read(model.decode(model.step_inputs([token], [PROMPT_TOKENS + step])))[0, 0, 0].float()
            found.append(_show(f"decode {step + 1}", got, expected))
    finally:
        ttnn.close_device(device)
    least = (
        LEAST_PCC_OF_FOUR_BITS
        if "bfloat4_b" in precision.weight_formats(TINY.num_hidden_layers)
        else LEAST_PCC
    )
    return verdict(found, least)


def verdict(found: Sequence[float], least: float) -> int:
    """Print the lowest PCC; exit code 0 when every one reaches `least`, which NaN does not."""
    lowest = math.nan if any(map(math.isnan, found)) else min(found)
    print(f"lowest PCC {lowest:.6f}, required {least}")
    return 0 if lowest >= least else 1


def _show(step: str, got, expected) -> float:
    """Print a step's figures; its PCC."""
    import torch

    pcc = float(torch.corrcoef(torch.stack((got, expected)).double())[0, 1])
    best = expected.topk(2).values
    print(
        f"{step:10} PCC {pcc:.6f}  largest error {float((got - expected).abs().max()):.4f}  "
        f"token {int(got.argmax())} (reference {int(expected.argmax())}, "
        f"{float(best[0] - best[1]):.3f} ahead)",
        flush=True,
    )
    return pcc


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
