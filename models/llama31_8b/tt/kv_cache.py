# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The preallocated KV cache of a mesh: each chip holds its KV heads for all users. paged_kv_cache.py has the one in
blocks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
import ttnn

from tt_kernels.tree_cache.op import commit_path, write_nodes

from ..config import LlamaConfig
from .parallel.mesh import BLOCKS, TILE, MeshShape

MAX_USERS = 32
ENTRY_ALIGNMENT = 8  # int32 entries of a page table row: 32 bytes


def cache_block(capacity: int) -> int:
    """Return how many positions attention takes at once from a cache of `capacity`, a multiple of 32."""
    return next(size for size in BLOCKS if capacity % size == 0)


def check_users(users: int) -> None:
    """Raises ValueError for a batch that no cache has."""
    if not 1 <= users <= MAX_USERS:
        raise ValueError(f"users must be 1 to {MAX_USERS}, got {users}")


class KVCacheBase(ABC):
    """What layers need of a cache. keys, values: one tensor per layer on each chip. capacity: positions per user.
    block: positions that prefill takes at once. table: the page table of decode steps, None without pages. The caller
    keeps the lengths, not the device."""

    users: int
    capacity: int
    block: int
    table: ttnn.Tensor | None = None

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        mesh_shape: MeshShape,
        config: LlamaConfig,
        dtype: str,
        shape: tuple[int, int, int, int],
        zeroed: bool,
    ) -> None:
        """Allocate tensors of `shape`. zeroed=False leaves contents undefined."""
        self.dtype = getattr(ttnn, dtype)
        # Converting zeros takes the host a second for 32K positions, so they are made once for all layers.
        blank = mesh_shape.put(mesh, torch.zeros(shape), dtype, on_device=False) if zeroed else None

        def allocate() -> ttnn.Tensor:
            if blank is not None:
                return ttnn.to_device(blank, mesh, memory_config=ttnn.DRAM_MEMORY_CONFIG)
            return ttnn.empty(shape, self.dtype, ttnn.TILE_LAYOUT, mesh, ttnn.DRAM_MEMORY_CONFIG)

        layers = range(config.num_hidden_layers)
        self.keys, self.values = ([allocate() for _ in layers] for _ in range(2))

    @abstractmethod
    def page_table(self, user: int) -> ttnn.Tensor:
        """Return a user's page table for prefill, int32 [query groups, blocks], see `blocks` and `query_groups`."""

    @abstractmethod
    def query_groups(self, heads: int) -> tuple[int, int]:
        """Return how prefill splits a chip's query heads: groups with a page table each, and heads of a group."""

    @abstractmethod
    def blocks(self, layer: int) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """View a layer's keys and values as prefill's attention reads them, [blocks, KV heads of a group, block,
        head_dim], without a copy."""

    @abstractmethod
    def fill(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, user: int, start: int) -> None:
        """Write a prefill chunk, bfloat16 [1, kv heads, tokens, head_dim] each, at positions from `start`. tokens: a
        multiple of 32 within the capacity. start: a multiple of 32; in pages, of `block`."""

    @abstractmethod
    def update(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, positions: ttnn.Tensor) -> None:
        """Write one token per user, [1, users, kv heads, head_dim] on one core per user, at int32 [users] `positions`;
        -1 skips a user."""

    @abstractmethod
    def update_together(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, positions: ttnn.Tensor) -> None:
        """Do `update` with one op: keys and values on different cores."""

    @abstractmethod
    def write_nodes(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, prefix: ttnn.Tensor, nodes: int) -> None:
        """Write the nodes of all users' token trees, bfloat16 [1, kv heads, users * nodes, head_dim], a user's node n
        at position prefix + n. prefix: int32 [users], -1 skips a user."""

    @abstractmethod
    def commit(self, prefix: ttnn.Tensor, path: ttnn.Tensor, nodes: int, first_column: int = 0) -> None:
        """Move the accepted path of every user's tree to the positions after its root, in all layers; for the arguments
        see `commit_path`. Rejected nodes stay after it until later tokens overwrite them."""

    def _stored(self, new: ttnn.Tensor) -> ttnn.Tensor:
        return new if new.dtype == self.dtype else ttnn.typecast(new, self.dtype)


class KVCache(KVCacheBase):
    """keys, values: [users, kv_heads / tp, capacity, head_dim], TILE, in DRAM.

    capacity: a multiple of 32. zeroed=False leaves contents undefined, which decode attention must not read. Raises
    ValueError.
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
        check_users(users)
        if capacity < TILE or capacity % TILE or capacity > -(-config.max_position_embeddings // TILE) * TILE:
            raise ValueError(
                f"cache capacity must be a multiple of {TILE} up to the context of {config.name}, "
                f"{config.max_position_embeddings}; got {capacity}"
            )
        self.heads = config.num_key_value_heads // mesh_shape.tp
        super().__init__(mesh, mesh_shape, config, dtype, (users, self.heads, capacity, config.head_dim), zeroed)
        self.users, self.capacity, self.block = users, capacity, cache_block(capacity)
        self._tables = [
            mesh_shape.put(mesh, self._page_table(user), "int32", "ROW_MAJOR_LAYOUT") for user in range(users)
        ]

    def _page_table(self, user: int) -> torch.Tensor:
        """Return int32 [kv heads, blocks per head, padded]: a user's blocks in the cache seen as `blocks`."""
        per_head = self.capacity // self.block
        starts = (user * self.heads + torch.arange(self.heads)) * per_head
        table = starts[:, None] + torch.arange(per_head)
        padding = -per_head % ENTRY_ALIGNMENT
        return torch.nn.functional.pad(table, (0, padding)).to(torch.int32)

    def page_table(self, user: int) -> ttnn.Tensor:
        return self._tables[user]

    def query_groups(self, heads: int) -> tuple[int, int]:
        # The paged op takes one page table for all heads. With heads as its batch each has a table, and the plain cache
        # serves as pages.
        return self.heads, heads // self.heads

    def blocks(self, layer: int) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        keys = self.keys[layer]
        shape = (math.prod(tuple(keys.shape)[:3]) // self.block, 1, self.block, keys.shape[3])
        return ttnn.reshape(keys, shape), ttnn.reshape(self.values[layer], shape)

    def fill(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, user: int, start: int) -> None:
        for cache, new in ((self.keys[layer], keys), (self.values[layer], values)):
            ttnn.fill_cache(cache, self._stored(new), user, update_idx=start)

    def update(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, positions: ttnn.Tensor) -> None:
        for cache, new in ((self.keys[layer], keys), (self.values[layer], values)):
            ttnn.experimental.paged_update_cache(cache, new, update_idxs_tensor=positions)

    def update_together(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, positions: ttnn.Tensor) -> None:
        ttnn.experimental.paged_fused_update_cache(
            self.keys[layer], keys, self.values[layer], values, update_idxs_tensor=positions
        )

    def write_nodes(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, prefix: ttnn.Tensor, nodes: int) -> None:
        write_nodes(self.keys[layer], self.values[layer], self._stored(keys), self._stored(values), prefix, nodes)

    def commit(self, prefix: ttnn.Tensor, path: ttnn.Tensor, nodes: int, first_column: int = 0) -> None:
        commit_path([*self.keys, *self.values], prefix, path, nodes, first_column=first_column)
