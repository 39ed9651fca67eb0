# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The preallocated KV cache of a mesh: each chip holds its KV heads for all users."""

from __future__ import annotations

import math

import torch
import ttnn

from tt_kernels.tree_cache.op import commit_path, write_nodes

from ..config import LlamaConfig
from .parallel.mesh import BLOCKS, TILE, MeshShape

MAX_USERS = 32
_ENTRY_ALIGNMENT = 8  # int32 entries of a page table row: 32 bytes


def cache_block(capacity: int) -> int:
    """Return how many positions attention takes at once from a cache of `capacity`, a multiple of 32."""
    return next(size for size in BLOCKS if capacity % size == 0)


class KVCache:
    """keys, values: one tensor per layer, [users, kv_heads / tp, capacity, head_dim] on each chip, TILE, in DRAM.

    capacity: positions per user, a multiple of 32. The caller keeps the lengths, not the device. zeroed=False leaves
    contents undefined, which decode attention must not read. Raises ValueError.
    """

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        mesh_shape: MeshShape,
        config: LlamaConfig,
        dtype: str,
        users: int,
        capacity: int,
        zeroed: bool = True,
    ) -> None:
        if not 1 <= users <= MAX_USERS:
            raise ValueError(f"users must be 1 to {MAX_USERS}, got {users}")
        if capacity < TILE or capacity % TILE or capacity > -(-config.max_position_embeddings // TILE) * TILE:
            raise ValueError(
                f"cache capacity must be a multiple of {TILE} up to the context of {config.name}, "
                f"{config.max_position_embeddings}; got {capacity}"
            )
        self.users, self.capacity, self.dtype = users, capacity, getattr(ttnn, dtype)
        self.heads = config.num_key_value_heads // mesh_shape.tp
        self.block = cache_block(capacity)
        shape = (users, self.heads, capacity, config.head_dim)

        # Converting zeros takes the host a second for 32K positions, so they are made once for all layers.
        blank = mesh_shape.put(mesh, torch.zeros(shape), dtype, on_device=False) if zeroed else None

        def allocate() -> ttnn.Tensor:
            if blank is not None:
                return ttnn.to_device(blank, mesh, memory_config=ttnn.DRAM_MEMORY_CONFIG)
            return ttnn.empty(shape, self.dtype, ttnn.TILE_LAYOUT, mesh, ttnn.DRAM_MEMORY_CONFIG)

        layers = range(config.num_hidden_layers)
        self.keys, self.values = ([allocate() for _ in layers] for _ in range(2))
        self._tables = [
            mesh_shape.put(mesh, self._page_table(user), "int32", "ROW_MAJOR_LAYOUT") for user in range(users)
        ]

    def _page_table(self, user: int) -> torch.Tensor:
        """Return int32 [kv heads, blocks per head, padded]: a user's blocks in the cache seen as `blocks`."""
        per_head = self.capacity // self.block
        starts = (user * self.heads + torch.arange(self.heads)) * per_head
        table = starts[:, None] + torch.arange(per_head)
        padding = -per_head % _ENTRY_ALIGNMENT
        return torch.nn.functional.pad(table, (0, padding)).to(torch.int32)

    def page_table(self, user: int) -> ttnn.Tensor:
        """Return a user's page table, one row per KV head of a chip, in blocks of `self.block` positions."""
        return self._tables[user]

    def blocks(self, layer: int) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """View a layer's keys and values as [blocks, 1, block, head_dim], without a copy."""
        keys = self.keys[layer]
        shape = (math.prod(tuple(keys.shape)[:3]) // self.block, 1, self.block, keys.shape[3])
        return ttnn.reshape(keys, shape), ttnn.reshape(self.values[layer], shape)

    def fill(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, user: int, start: int) -> None:
        """Write a prefill chunk, bfloat16 [1, kv heads, tokens, head_dim] each, at positions from `start`. tokens and
        start: multiples of 32 within the capacity."""
        for cache, new in ((self.keys[layer], keys), (self.values[layer], values)):
            ttnn.fill_cache(cache, self._stored(new), user, update_idx=start)

    def update(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, positions: ttnn.Tensor) -> None:
        """Write one token per user, [1, users, kv heads, head_dim] on one core per user, at int32 [users] `positions`;
        -1 skips a user."""
        for cache, new in ((self.keys[layer], keys), (self.values[layer], values)):
            ttnn.experimental.paged_update_cache(cache, new, update_idxs_tensor=positions)

    def update_together(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, positions: ttnn.Tensor) -> None:
        """Do `update` with one op: keys and values on different cores."""
        ttnn.experimental.paged_fused_update_cache(
            self.keys[layer], keys, self.values[layer], values, update_idxs_tensor=positions
        )

    def write_nodes(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, prefix: ttnn.Tensor, nodes: int) -> None:
        """Write the nodes of all users' token trees, bfloat16 [1, kv heads, users * nodes, head_dim], a user's node n
        at position prefix + n. prefix: int32 [users], -1 skips a user."""
        write_nodes(self.keys[layer], self.values[layer], self._stored(keys), self._stored(values), prefix, nodes)

    def commit(self, prefix: ttnn.Tensor, path: ttnn.Tensor, nodes: int, first_column: int = 0) -> None:
        """Move the accepted path of every user's tree to the positions after its root, in all layers; for the arguments
        see `commit_path`. Rejected nodes stay after it until later tokens overwrite them."""
        commit_path([*self.keys, *self.values], prefix, path, nodes, first_column=first_column)

    def _stored(self, new: ttnn.Tensor) -> ttnn.Tensor:
        return new if new.dtype == self.dtype else ttnn.typecast(new, self.dtype)
