# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The bench of what a decode step does between the fused product and attention, against the stock ops, at the shards of
Llama 3.1 8B."""

from __future__ import annotations

from types import SimpleNamespace

from perf.lib.chip import Chip, timed_launch
from perf.ops.family import Family, Row, measurable

GRID = "8x6"  # a core for each head of a whole layer
CAPACITY, POSITION = 128, 100
STOCK = ("create", "rotate", "move", "update")


def _rotated_heads(device, p: SimpleNamespace) -> Row:
    """Cycles of the stock ops and of `cached_heads`."""
    import torch
    import ttnn

    from models.llama31_8b.config import preset
    from models.llama31_8b.tt.layouts import in_l1
    from models.llama31_8b.tt.mesh import TILE, MeshShape
    from models.llama31_8b.tt.modules import Rope, pair_rotation, user_shards
    from models.llama31_8b.tt.sharding import Shards
    from perf.lib.tensors import tile, words
    from runtime_patches.profiling.timeline import Timeline
    from tt_kernels.rotated_heads.op import cached_heads

    torch.manual_seed(0)
    config, mesh_shape = preset("llama-3.1-8b"), MeshShape(1, 1)
    heads, kv_heads, head_dim = config.num_attention_heads // p.tp, config.num_key_value_heads // p.tp, config.head_dim
    cores = heads + 2 * kv_heads
    shards = in_l1(device, Shards(cores, head_dim))
    fused = tile(device, (1, 1, p.users, cores * head_dim), memory=shards)
    caches = [tile(device, (p.users, kv_heads, CAPACITY, head_dim), "bfloat8_b") for _ in range(2)]
    positions = words(device, [POSITION] * p.users)
    # The stock op rotates queries and keys on separate cores, with angles for each.
    rope = Rope(device, mesh_shape, config, CAPACITY, 2 * p.users)
    twice = rope.decode_angles(words(device, [[POSITION] * 2 * p.users], "uint32"))
    rotation = tile(
        device, pair_rotation().repeat(1, 1, 2 * p.users, 1), memory=user_shards(device, 2 * p.users, TILE, TILE)
    )
    angles = rope.user_angles(words(device, [[POSITION] * p.users], "uint32"))

    def stock():
        q, k, v = ttnn.experimental.nlp_create_qkv_heads_decode(
            fused,
            num_heads=heads,
            num_kv_heads=kv_heads,
            overlap_qk_coregrid=False,
            memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
        )
        q, k = ttnn.experimental.rotary_embedding_llama_fused_qk(q, k, *twice, rotation)
        q = ttnn.sharded_to_interleaved(q, ttnn.L1_MEMORY_CONFIG)
        ttnn.experimental.paged_fused_update_cache(caches[0], k, caches[1], v, update_idxs_tensor=positions)
        return q

    split = (fused, angles.cos, angles.sin, heads, kv_heads)
    timeline = Timeline(device)
    _, each = timed_launch(timeline, stock)
    row: Row = dict(zip(STOCK, each, strict=True)) | {"stock": sum(each)}
    _, (row["cached"],) = timed_launch(
        timeline, lambda: cached_heads(*split, caches[0], caches[1], positions, q_memory=ttnn.L1_MEMORY_CONFIG)
    )
    return measurable(row) | {"of_stock": row["cached"] / row["stock"]}


ROTATED_HEADS = Family(
    about="heads of a decode step split, rotated and cached by one op, against four stock ops",
    options={"tp": 1, "users": 1},
    choices={"tp": (1, 2, 4, 8)},
    points={"default": ["tp=1,8"]},
    chip=lambda point: Chip(GRID, timed=True),
    measure=_rotated_heads,
)
