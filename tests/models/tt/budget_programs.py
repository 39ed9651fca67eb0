# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode steps of a chip pair whose guesses read by a budget, in a worker (see sim_worker.py)."""

from __future__ import annotations

from typing import NamedTuple

import torch

from tests.models.tt.forced_outcomes import attention_alone
from tests.models.tt.speculation_programs import TIMEOUT_S, load_cache
from tests.support.tt_programs import half_split

NOTHING = -1


class Part(NamedTuple):
    """Some decode steps. tokens, positions: of each step and user; position -1 skips a user. anew: attention weights
    are forgotten before, as for a new prompt or a conversation turn. held: a fault before it; each user's masses on the
    first rank become those that they were after that step of all, or NOTHING."""

    threshold: float
    tokens: list[list[int]]
    positions: list[list[int]]
    anew: bool = False
    held: tuple[int, ...] | None = None


def bits_of(words: torch.Tensor) -> list[int]:
    """Return the tiles whose bits are set in a head's words."""
    return [32 * at + bit for at, word in enumerate(words.tolist()) for bit in range(32) if word >> bit & 1]


def decode_by_budget(
    mesh,
    config,
    state,
    prefilled,
    chunk_size: int,
    budget: float,
    capacity: int,
    parts: list[Part],
    workers: int | None = None,
) -> dict:
    """Return, per step, the logits of both ranks, the priorities of both after each layer, and each rank's bitmaps
    of chosen tiles and masses of each layer, int64 [users, kv_heads, words]; and both ranks' caches and, after a
    reset, masses at the end.
    workers: per head, by default by shapes; with them also the logits of the last step by every chip alone, with exact
    attention over the same tiles."""
    import ttnn

    from models.llama31_8b.tt.alspec import PairAlspec
    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.settings import AttentionSettings, ModelSettings
    from tt_kernels.speculative_flash_decode.op import ProgramConfig

    users = len(parts[0].positions[0])
    # By shapes a chip alone has more cores, and other sums.
    program = None if workers is None else ProgramConfig(workers_per_head=workers, key_chunk=chunk_size)
    settings = AttentionSettings(
        "alspec", chunk_size, predictor="budget", budget=budget, timeout_s=TIMEOUT_S, program=program
    )
    attend = PairAlspec(mesh, MeshShape(*mesh.shape), config, settings, users, capacity)
    model = TtLlama.from_state_dict(config, state, mesh, ModelSettings(users, capacity, "bfloat16", attend))
    load_cache(model, *prefilled)

    def by_rank(tensor) -> list[torch.Tensor]:
        return [ttnn.to_torch(part) for part in ttnn.get_device_tensors(tensor)]

    def put_by_rank(tensor, parts: list[torch.Tensor]) -> None:
        mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
        host = ttnn.from_torch(torch.cat(parts), dtype=tensor.dtype, layout=tensor.layout, mesh_mapper=mapper)
        ttnn.copy_host_to_device_tensor(host, tensor)

    steps = []
    for part in parts:
        attend.threshold = part.threshold
        if part.anew:
            attend.reset()
        if part.held is not None:
            for layer, masses in enumerate(attend.by_budget.masses):
                own, other = (part.int() for part in by_rank(masses))
                for user, step in enumerate(part.held):
                    own[user] = 0 if step == NOTHING else steps[step]["masses"][layer][0][user].int()
                put_by_rank(masses, [own, other])
        for tokens, positions in zip(part.tokens, part.positions, strict=True):
            out = model.decode(model.step_inputs(tokens, positions))
            model.check()
            steps.append(
                {
                    "logits": [rank[0, 0, :users].float() for rank in by_rank(out)],
                    "priorities": attend.last_priorities(),
                    "chosen": [[rank.long() for rank in by_rank(layer)] for layer in attend.by_budget.chosen],
                    "masses": [[rank.long() for rank in by_rank(layer)] for layer in attend.by_budget.masses],
                }
            )
    alone = []
    if program is not None:
        exact = attention_alone()(chunk_size, False, attend.guess_range, attend.by_budget.chosen, program)
        last = model.step_inputs(parts[-1].tokens[-1], parts[-1].positions[-1])
        alone = by_rank(model.with_attention(exact).decode(last))
    caches = [
        [(half_split(k.float()), v.float()) for k, v in zip(by_rank(keys), by_rank(values), strict=True)]
        for keys, values in zip(model.cache.keys, model.cache.values, strict=True)
    ]
    attend.reset()
    return {
        "steps": steps,
        "alone": [rank[0, 0, :users].float() for rank in alone],
        "caches": caches,
        "forgotten": [[rank.long() for rank in by_rank(layer)] for layer in attend.by_budget.masses],
    }
