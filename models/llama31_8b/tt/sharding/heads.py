# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Queries, keys and values of a decode step, between the fused product and attention, and the heads' output joined
again."""

from __future__ import annotations

from abc import ABC, abstractmethod

import ttnn

from ...config import LlamaConfig
from ..kv_cache import KVCacheBase
from ..parallel.mesh import TILE, MeshShape
from ..rope import Angles, Rope, all_cores, user_shards
from .config import ShardingError


class Heads(ABC):
    """The heads of one chip. Queries are [1, users, heads / tp, head_dim], keys and values [1, users, kv heads / tp,
    head_dim], bfloat16, one core per user. Errors: ShardingError if a chip has more query heads than cores."""

    # Cores that share a user's rotation: the rows of angles that a step looks up for each.
    angle_rows = 1

    def __init__(self, mesh: ttnn.MeshDevice, mesh_shape: MeshShape, config: LlamaConfig) -> None:
        self.mesh = mesh
        self.heads = config.num_attention_heads // mesh_shape.tp
        self.kv_heads = config.num_key_value_heads // mesh_shape.tp
        self.head_dim = config.head_dim
        grid = mesh.compute_with_storage_grid_size()
        if self.heads > grid.x * grid.y:
            raise ShardingError(
                f"joining heads takes a core for each: {config.name} has {self.heads} query heads per chip on "
                f"{mesh_shape}, a chip {grid.x} x {grid.y} cores"
            )

    @abstractmethod
    def split(self, fused: ttnn.Tensor) -> tuple[ttnn.Tensor, ttnn.Tensor, ttnn.Tensor]:
        """Split the fused product [1, 1, users, (heads + 2 kv heads) * head_dim / tp] into queries, keys and values."""

    @abstractmethod
    def rotate(self, rope: Rope, q: ttnn.Tensor, k: ttnn.Tensor, angles: Angles) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """Rotate queries and keys by the angles of `Rope.decode_angles`."""

    @abstractmethod
    def store(self, cache: KVCacheBase, layer: int, k: ttnn.Tensor, v: ttnn.Tensor, positions: ttnn.Tensor) -> None:
        """Write keys and values into the cache, see KVCacheBase.update."""

    @abstractmethod
    def queries(self, q: ttnn.Tensor, takes_shards: bool) -> ttnn.Tensor:
        """Place queries for attention: interleaved, or as they are if attention takes shards."""

    @abstractmethod
    def join(self, out: ttnn.Tensor) -> ttnn.Tensor:
        """Join attention's output, [1, users, heads / tp, head_dim], interleaved -> [1, 1, users, heads * head_dim /
        tp], the output projection's input."""

    def _split(self, fused: ttnn.Tensor, apart: bool) -> tuple[ttnn.Tensor, ttnn.Tensor, ttnn.Tensor]:
        return ttnn.experimental.nlp_create_qkv_heads_decode(
            fused,
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            overlap_qk_coregrid=not apart,
            memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
        )

    def _join(self, out: ttnn.Tensor) -> ttnn.Tensor:
        """Join heads side by side, one core each; the op returns 32 rows."""
        shards = user_shards(self.mesh, out.shape[1], TILE, self.head_dim)
        # Of users on cores that are no rectangle the op must be told which cores its result may take.
        grid = None if shards.shard_spec.grid.size() == 1 else all_cores(self.mesh)
        out = ttnn.interleaved_to_sharded(out, shards)
        return ttnn.experimental.nlp_concat_heads_decode(out, num_heads=self.heads, sub_core_grids=grid)

    def _users_alone(self, joined: ttnn.Tensor, users: int) -> ttnn.Tensor:
        """Turn the rows after the users' into padding, without a copy."""
        width = self.heads * self.head_dim
        return ttnn.reshape(joined, (1, 1, users, width), (1, 1, TILE, width))


class InterleavedHeads(Heads):
    """Queries, keys and values on the same cores, with one op for each; attention reads queries from DRAM."""

    def split(self, fused):
        return self._split(fused, apart=False)

    def rotate(self, rope, q, k, angles):
        return rope.decode(q, angles), rope.decode(k, angles)

    def store(self, cache, layer, k, v, positions):
        cache.update(layer, k, v, positions)

    def queries(self, q, takes_shards):
        return ttnn.to_memory_config(q, ttnn.DRAM_MEMORY_CONFIG)

    def join(self, out):
        joined = ttnn.to_memory_config(self._join(out), ttnn.L1_MEMORY_CONFIG)
        return self._users_alone(joined, out.shape[1])


class ShardedHeads(Heads):
    """Keys on other cores than queries and values, so that one op rotates both and one op caches both."""

    angle_rows = 2

    def __init__(self, mesh: ttnn.MeshDevice, mesh_shape: MeshShape, config: LlamaConfig, users: int) -> None:
        super().__init__(mesh, mesh_shape, config)
        self.users = users

    def split(self, fused):
        return self._split(fused, apart=True)

    def rotate(self, rope, q, k, angles):
        return rope.decode_together(q, k, angles)

    def store(self, cache, layer, k, v, positions):
        cache.update_together(layer, k, v, positions)

    def queries(self, q, takes_shards):
        return q if takes_shards else ttnn.sharded_to_interleaved(q, ttnn.L1_MEMORY_CONFIG)

    def join(self, out):
        return self._users_alone(self._join(out), out.shape[1])
