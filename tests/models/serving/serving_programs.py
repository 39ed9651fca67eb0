# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter over a mesh of a worker (see sim_worker.py), served by the plugin's side of the contract."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from .plugin_side import BLOCK, WIDTH, Plugin, Request, serve


def adapter_on(mesh, users: int, folder: Path, **settings: Any):
    """Write a tiny checkpoint into a folder; return the adapter of it, and its config. settings: of the adapter."""
    from models.llama31_8b.serving import tiny_checkpoint
    from models.llama31_8b.serving.generator_vllm import LlamaForCausalLM

    config = tiny_checkpoint.write(folder, tiny_checkpoint.config().with_layers(1))
    hf_config = SimpleNamespace(_name_or_path=str(folder), alspec=settings)
    return LlamaForCausalLM.initialize_vllm_model(hf_config, mesh, users, max_seq_len=BLOCK * WIDTH), config


def served(mesh, folder: Path, requests: list[Request], users: int, seed: int, **settings: Any) -> dict[str, Any]:
    """Serve requests that come and go in a random order, steps overlapping, then each alone. Returns the texts, how
    many requests each step had, and how many steps replayed a trace."""
    import ttnn

    on_device = {"chooses": "device", "wait": ttnn.event_synchronize}
    plugin = Plugin(*adapter_on(mesh, users, folder, **settings), users=users, blocks=8 * users, seed=seed, **on_device)
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


def speculated(
    mesh, folder: Path, requests: list[Request], drafter: str, drafts: int, **settings: Any
) -> dict[str, Any]:
    """Serve requests together, one token per step, then again with drafts by the model. drafter: "twin" has the
    target's weights, "self" is the target with a window of 32. settings: of the adapter. Returns the texts, for each
    verification how many drafts were right of how many, and how many guesses were verified."""
    import ttnn

    users = len(requests)
    draft = {"draft": "self", "draft_window": 32} if drafter == "self" else {"draft": str(folder)}
    model = adapter_on(mesh, users, folder, precision="accuracy", **draft, **settings)
    plugin = Plugin(*model, users=users, blocks=8 * users, wait=ttnn.event_synchronize)
    plain = deepcopy(requests)
    plugin.prefill_all(plain, 1000)
    while running := [request for request in plain if request.wanted]:
        plugin.decode(running, overlap=True)
        plugin.settle()
    for request in plain:
        plugin.release(request)
    plugin.prefill_all(requests, 32)
    given, counts = [[] for _ in requests], []
    while running := [request for request in requests if request.wanted]:
        right = plugin.verify(running, given, "argmax_ids", drafts + 1)
        counts += zip(right, map(len, given), strict=True)
        proposed = dict(zip(map(id, running), plugin.propose(running, drafts), strict=True))
        given = [proposed[id(request)] for request in running if request.wanted]
    counted = plugin.adapter.engine.model.decode_attention.statistics()
    texts = {"plain": [r.tokens for r in plain], "drafted": [r.tokens for r in requests]}
    return texts | {"counts": counts, "guesses": 0 if counted is None else counted.hits + counted.misses}


def built(mesh, users: int) -> dict[str, tuple[int, ...]]:
    """Build each kind of step of two layers of Llama 3.1 8B on a mock mesh, whose two rows speculate; return what they
    give."""
    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.serving.engine import Draw
    from models.llama31_8b.serving.mesh_engine import MeshEngine
    from perf.footprint.mesh_build import build_model

    chunk_size = 128 if tuple(mesh.shape)[0] == 2 else None
    engine = MeshEngine(build_model(mesh, "performance", users, 4096, 2, chunk_size, cache_blocks=70))
    rows = torch.arange(users)
    pages = (torch.arange(users * 64).view(users, 64) % 69 + 1).int()
    found = {"logits": engine.decode(rows, rows + 100, pages)}
    for name, params in (("greedy", SamplingParams()), ("drawn", SamplingParams(0.7, top_k=20, top_p=0.9))):
        found[name] = engine.sample(rows, rows + 100, pages, [Draw(params, 0.5)] * users)
    if users <= 8:
        positions = 100 + torch.arange(4).repeat(users, 1)
        chains = torch.zeros(users, 4, dtype=torch.int64), positions, pages
        found |= {"verification": engine.verify(*chains, False), "chosen": engine.verify(*chains, True)}
    return {name: tuple(step.shape) for name, step in found.items()}
