# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter over a mesh of a worker (see sim_worker.py), served by the plugin's side of the contract."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch

from .plugin_side import BLOCK, WIDTH, Plugin, Request, serve


def adapter_on(mesh, users: int, drafter: str | None = None):
    """Return the adapter of a tiny random model, and the model's config. drafter: "twin" drafts by the same
    weights, "self" by the model's attention to both ends."""
    from models.llama31_8b.checkpoint.random_weights import random_state_dict
    from models.llama31_8b.demo.backends.sim.backend import TINY
    from models.llama31_8b.serving.generator_vllm import LlamaForCausalLM
    from models.llama31_8b.serving.mesh_engine import MeshEngine
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.settings import ModelSettings

    config = TINY.with_layers(1)
    state = random_state_dict(config, 0)

    def make(blocks: int, block_size: int) -> MeshEngine:
        capacity = block_size * (WIDTH + 1)  # verifications may write after the context
        settings = ModelSettings(
            users=users, capacity=capacity, precision="accuracy", cache_blocks=blocks, block_size=block_size
        )
        target, *draft = (
            TtLlama.from_state_dict(config, state, mesh, settings) for _ in range(2 if drafter == "twin" else 1)
        )
        return MeshEngine(target, *draft, window=32 if drafter == "self" else None)

    return LlamaForCausalLM(make, users, BLOCK * WIDTH), config


def served(mesh, requests: list[Request], users: int, seed: int) -> dict[str, Any]:
    """Serve requests that come and go in a random order, steps overlapping, then each alone. Returns the texts, how
    many requests each step had, and how many steps replayed a trace."""
    import ttnn

    on_device = {"chooses": "device", "wait": ttnn.event_synchronize}
    plugin = Plugin(*adapter_on(mesh, users), users=users, blocks=8 * users, seed=seed, **on_device)
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


def speculated(mesh, requests: list[Request], drafter: str, drafts: int) -> dict[str, Any]:
    """Serve requests together, one token per step, then again with drafts of the model. Returns the texts, and for each
    verification how many drafts were right of how many."""
    import ttnn

    users = len(requests)
    plugin = Plugin(*adapter_on(mesh, users, drafter), users=users, blocks=8 * users, wait=ttnn.event_synchronize)
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
    return {"plain": [r.tokens for r in plain], "drafted": [r.tokens for r in requests], "counts": counts}


def built(mesh, users: int) -> dict[str, tuple[int, ...]]:
    """Build each kind of step of two layers of Llama 3.1 8B on a mock mesh; return what they give."""
    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.serving.engine import Draw
    from models.llama31_8b.serving.mesh_engine import MeshEngine
    from perf.footprint.mesh_build import build_model

    engine = MeshEngine(build_model(mesh, "performance", users, 4096, 2, None, cache_blocks=70))
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
