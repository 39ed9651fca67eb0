# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding on adjacent pairs, with angles looked up by position on the device."""

from __future__ import annotations

from typing import NamedTuple

import torch
import ttnn

from ..config import LlamaConfig
from ..rope_frequencies import inverse_frequencies
from .parallel.mesh import TILE, MeshShape


class Angles(NamedTuple):
    """cos, sin: bfloat16; for decode [1, users, 1, head_dim], one core per user; for prefill [1, 1, tokens,
    head_dim]."""

    cos: ttnn.Tensor
    sin: ttnn.Tensor


def angle_tables(config: LlamaConfig, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos, sin: float32 [positions, head_dim], each angle twice in succession. Angles are computed in
    float32."""
    angles = torch.arange(positions).float()[:, None] * inverse_frequencies(config)
    return angles.cos().repeat_interleave(2, 1), angles.sin().repeat_interleave(2, 1)


def pair_rotation() -> torch.Tensor:
    """Return [1, 1, 32, 32], by which x @ matrix turns every pair (a, b) of x into (-b, a)."""
    matrix = torch.zeros(1, 1, TILE, TILE)
    even = torch.arange(0, TILE, 2)
    matrix[..., even, even + 1] = 1
    matrix[..., even + 1, even] = -1
    return matrix


def user_shards(mesh: ttnn.MeshDevice, users: int, rows: int, columns: int) -> ttnn.MemoryConfig:
    """Return L1 memory with a [rows, columns] shard on one core per user. Raises ValueError for more users than
    cores."""
    grid = mesh.compute_with_storage_grid_size()
    if users > grid.x * grid.y:
        raise ValueError(f"{users} users need one core each, the chip has {grid.x} x {grid.y}")
    return ttnn.create_sharded_memory_config(
        (rows, columns),
        core_grid=ttnn.num_cores_to_corerangeset(users, grid, row_wise=True),
        strategy=ttnn.ShardStrategy.HEIGHT,
        orientation=ttnn.ShardOrientation.ROW_MAJOR,
        use_height_and_width_as_shard_shape=True,
    )


def all_cores(mesh: ttnn.MeshDevice) -> ttnn.CoreRangeSet:
    """Return the cores that ops may use."""
    grid = mesh.compute_with_storage_grid_size()
    return ttnn.num_cores_to_corerangeset(grid.x * grid.y, grid, row_wise=True)


class Rope:
    """Angles of all positions below `positions` in DRAM, and the rotary op's matrices for `users` users. copies: 2 if a
    user's queries and keys are on separate cores, which rotate at once."""

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        mesh_shape: MeshShape,
        config: LlamaConfig,
        positions: int,
        users: int,
        copies: int = 1,
    ) -> None:
        self.mesh, self.head_dim, self.users = mesh, config.head_dim, users * copies
        self.tables = [
            mesh_shape.put(mesh, table, "bfloat16", "ROW_MAJOR_LAYOUT") for table in angle_tables(config, positions)
        ]
        self._rotation = mesh_shape.put(mesh, pair_rotation(), "bfloat16")
        self._rotations = mesh_shape.put(
            mesh,
            pair_rotation().repeat(1, 1, self.users, 1),
            "bfloat16",
            memory=user_shards(mesh, self.users, TILE, TILE),
        )

    def decode_angles(self, positions: ttnn.Tensor) -> Angles:
        """Look up angles. positions: uint32 [1, copies * users], ROW_MAJOR, one new token per user, all users for each
        copy."""
        shards = user_shards(self.mesh, self.users, TILE, self.head_dim)
        rows = (ttnn.transpose(self._rows(positions, table), 1, 2) for table in self.tables)
        return Angles(*(ttnn.interleaved_to_sharded(row, shards) for row in rows))

    def prefill_angles(self, positions: ttnn.Tensor) -> Angles:
        """Look up angles. positions: uint32 [1, tokens], ROW_MAJOR."""
        return Angles(*(self._rows(positions, table) for table in self.tables))

    def decode(self, x: ttnn.Tensor, angles: Angles) -> ttnn.Tensor:
        """Rotate x: [1, users, heads, head_dim], one core per user."""
        return ttnn.experimental.rotary_embedding_llama(x, *angles, self._rotations, is_decode_mode=True)

    def decode_together(self, q: ttnn.Tensor, k: ttnn.Tensor, angles: Angles) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """Rotate queries and keys, [1, users, heads, head_dim] each, one core per user, the keys on the cores after the
        queries'."""
        return ttnn.experimental.rotary_embedding_llama_fused_qk(q, k, *angles, self._rotations)

    def prefill(self, x: ttnn.Tensor, angles: Angles) -> ttnn.Tensor:
        """Rotate x: [1, heads, tokens, head_dim]."""
        return ttnn.experimental.rotary_embedding_llama(x, *angles, self._rotation, is_decode_mode=False)

    @staticmethod
    def _rows(positions: ttnn.Tensor, table: ttnn.Tensor) -> ttnn.Tensor:
        return ttnn.unsqueeze_to_4D(ttnn.embedding(positions, table, layout=ttnn.TILE_LAYOUT))
