# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter over a mesh of a worker (see sim_worker.py), served by the plugin's side of the contract."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from .plugin_side import BLOCK, WIDTH, Plugin, Request, serve


def adapter_on(mesh, users: int, **settings: Any):
    """Return the adapter of a tiny model with random weights, and the model's config."""
    from models.llama31_8b.checkpoint.random_weights import random_state_dict
    from models.llama31_8b.demo.backends.sim.backend import TINY
    from models.llama31_8b.serving.generator_vllm import LlamaForCausalLM
    from models.llama31_8b.serving.mesh_engine import MeshEngine
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.settings import ModelSettings

    state = random_state_dict(TINY, 0)

    def make(blocks: int, block_size: int) -> MeshEngine:
        given = ModelSettings(
            users=users, capacity=BLOCK * WIDTH, cache_blocks=blocks, block_size=block_size, **settings
        )
        return MeshEngine(TtLlama.from_state_dict(TINY, state, mesh, given))

    return LlamaForCausalLM(make, users, BLOCK * WIDTH), TINY


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
