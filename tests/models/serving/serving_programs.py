# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter over a mesh of a worker (see sim_worker.py), served by the plugin's side of the contract."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from models.llama31_8b.config import LlamaConfig

from .plugin_side import BLOCK, WIDTH, Plugin, Request, serve


def adapter_on(mesh, users: int, folder: Path, config: LlamaConfig, **settings: Any):
    """Write a checkpoint of random weights into a folder; return the adapter of it. settings: of the adapter."""
    from models.llama31_8b import tiny
    from models.llama31_8b.serving.generator_vllm import LlamaForCausalLM

    tiny.write_checkpoint(folder, config)
    hf_config = SimpleNamespace(_name_or_path=str(folder), alspec=settings)
    return LlamaForCausalLM.initialize_vllm_model(hf_config, mesh, users, max_seq_len=BLOCK * WIDTH)


def served(
    mesh, folder: Path, requests: list[Request], users: int, seed: int, config: LlamaConfig, **settings: Any
) -> dict[str, Any]:
    """Serve requests that come and go in a random order, steps overlapping, then each alone. Returns the texts, how
    many requests each step had, and how many steps replayed a trace."""
    import ttnn

    on_device = {"chooses": "device", "wait": ttnn.event_synchronize}
    adapter = adapter_on(mesh, users, folder, config, **settings)
    plugin = Plugin(adapter, config, users=users, blocks=8 * users, seed=seed, **on_device)
    for traced in (False, True):
        plugin.adapter.warmup_model_decode([[]], traced, users, WIDTH, can_sample_on_device=True)
    single = deepcopy(requests)
    sizes = serve(plugin, requests, seed, overlap=True)
    for request in single:
        serve(plugin, [request], seed, preempt=False)
    steps = plugin.adapter.engine._steps
    return {
        "together": [request.tokens for request in requests],
        "alone": [request.tokens for request in single],
        "sizes": sizes,
        "replays": {name: step.replays for name, step in steps.items()},
    }


def built(mesh, users: int) -> dict[str, tuple[int, ...]]:
    """Build each kind of step of two layers of Llama 3.1 8B on a mock mesh, whose two rows speculate; return what they
    give."""
    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.serving.draws import Draw
    from models.llama31_8b.serving.mesh_engine import MeshEngine
    from perf.footprint.mesh_build import build_model

    chunk_size = 128 if tuple(mesh.shape)[0] == 2 else None
    engine = MeshEngine(build_model(mesh, "performance", users, 4096, 2, chunk_size, cache_blocks=70))
    rows = torch.arange(users)
    pages = (torch.arange(users * 64).view(users, 64) % 69 + 1).int()
    found = {"logits": engine.decode(rows, rows + 100, pages)}
    for name, params in (("greedy", SamplingParams()), ("drawn", SamplingParams(0.7, top_k=20, top_p=0.9))):
        found[name] = engine.sample(rows, rows + 100, pages, [Draw(params, 0.5)] * users)
    return {name: tuple(step.shape) for name, step in found.items()}
