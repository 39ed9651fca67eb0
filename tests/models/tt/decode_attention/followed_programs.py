# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode steps of a chip pair whose guesses follow the attention, in a worker (see sim_worker.py)."""

from __future__ import annotations

from typing import NamedTuple

import torch

from tests.models.tt.decode_attention.speculation_programs import TIMEOUT_S, load_cache
from tests.support.tt_programs import half_split


class Part(NamedTuple):
    """Some decode steps. tokens, positions: of each step and user; position -1 skips a user. anew: what was followed is
    forgotten before, as for a new prompt or a conversation turn."""

    threshold: float
    tokens: list[list[int]]
    positions: list[list[int]]
    anew: bool


def follow(mesh, config, state, prefilled, chunk_size: int, capacity: int, parts: list[Part]) -> dict:
    """Return, per step, the logits of both ranks, the priorities of both after each layer, and each rank's lists and
    masses of each layer, int64 [users, kv_heads, words]; and both ranks' caches at the end."""
    import ttnn

    from models.llama31_8b.tt.decode_attention.alspec import AttentionSpeculation
    from models.llama31_8b.tt.decode_attention.settings import followed_range
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.parallel.mesh import MeshShape
    from models.llama31_8b.tt.settings import ModelSettings

    users = len(parts[0].positions[0])
    attend = AttentionSpeculation(
        mesh,
        MeshShape(*mesh.shape),
        config,
        users=users,
        capacity=capacity,
        chunk_size=chunk_size,
        timeout_s=TIMEOUT_S,
        guess_range=followed_range(chunk_size),
    )
    model = TtLlama.from_state_dict(config, state, mesh, ModelSettings(users, capacity, "bfloat16", attend))
    load_cache(model, *prefilled)

    def by_rank(tensor) -> list[torch.Tensor]:
        return [ttnn.to_torch(part) for part in ttnn.get_device_tensors(tensor)]

    steps = []
    for part in parts:
        attend.threshold = part.threshold
        if part.anew:
            attend.reset()
        for tokens, positions in zip(part.tokens, part.positions, strict=True):
            out = model.decode(model.step_inputs(tokens, positions))
            attend.check()
            steps.append(
                {
                    "logits": [rank[0, 0, :users].float() for rank in by_rank(out)],
                    "priorities": attend.last_priorities(),
                    "lists": [[rank.long() for rank in by_rank(layer)] for layer in attend.followed.lists],
                    "masses": [[rank.long() for rank in by_rank(layer)] for layer in attend.followed.masses],
                }
            )
    caches = [
        [(half_split(k.float()), v.float()) for k, v in zip(by_rank(keys), by_rank(values), strict=True)]
        for keys, values in zip(model.cache.keys, model.cache.values, strict=True)
    ]
    return {"steps": steps, "caches": caches}
