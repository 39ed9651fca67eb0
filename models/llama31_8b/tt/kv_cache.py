# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The KV cache of a mesh: each chip holds its KV heads for all users, preallocated, or in blocks that a page table
gives to users (for serving, where sequences come, grow and share prefixes)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
import ttnn

from tt_kernels.common.page_table import BLOCKS
from tt_kernels.speculative_sampling.checks import MAX_NODES
from tt_kernels.tree_cache.op import commit_path, write_nodes

from .dram_budget import check_users, most_positions
from .mesh import TILE, Site

ENTRY_ALIGNMENT = 8  # int32 entries of a page table row: 32 bytes


def cache_block(capacity: int) -> int:
    """Return how many positions attention takes at once from a cache of `capacity`, a multiple of 32."""
    return next(size for size in reversed(BLOCKS) if capacity % size == 0)


class LayerCache(NamedTuple):
    """A layer's cache as decode attention reads it. page_table: int32 [users, blocks], None for a plain cache."""

    keys: ttnn.Tensor
    values: ttnn.Tensor
    page_table: ttnn.Tensor | None = None


class KVCacheBase(ABC):
    """What layers need of a cache. keys, values: one tensor per layer on each chip. table: the page table of decode
    steps, None without pages. The caller keeps the lengths, not the device."""

    table: ttnn.Tensor | None = None

    def __init__(self, site: Site, dtype: str, shape: tuple[int, int, int, int], zeroed: bool) -> None:
        """Allocate tensors of `shape`. zeroed=False leaves contents undefined."""
        self.site, self.dtype = site, getattr(ttnn, dtype)
        # Converting zeros takes the host a second for 32K positions, so they are made once for all layers.
        blank = site.shape.put(site.mesh, torch.zeros(shape), dtype, on_device=False) if zeroed else None

        def allocate() -> ttnn.Tensor:
            if blank is not None:
                return ttnn.to_device(blank, site.mesh, memory_config=ttnn.DRAM_MEMORY_CONFIG)
            return ttnn.empty(shape, self.dtype, ttnn.TILE_LAYOUT, site.mesh, ttnn.DRAM_MEMORY_CONFIG)

        layers = range(site.config.num_hidden_layers)
        self.keys, self.values = ([allocate() for _ in layers] for _ in range(2))

    def of_layer(self, layer: int) -> LayerCache:
        return LayerCache(self.keys[layer], self.values[layer], self.table)

    @abstractmethod
    def page_table(self, user: int) -> torch.Tensor:
        """Return a user's page table for prefill's attention, int32 [groups of KV heads, blocks], see `blocks`."""

    @abstractmethod
    def _pages_of(self, user: int) -> torch.Tensor:
        """Return which of `keys`' first dimension hold a user's positions, in their order, int [pages]."""

    def places(self, user: int, start: int, rows: int) -> torch.Tensor:
        """Return where `fill` writes a user's positions from `start` on, int32 [1, heads * tiles]: all heads one after
        the other, a tile's number among those of a layer's keys. start, rows: multiples of 32 within the capacity."""
        _, heads, page, _ = self.keys[0].shape
        position = torch.arange(start, start + rows, TILE)
        row = self._pages_of(user)[position // page] * heads + torch.arange(heads)[:, None]
        return (row * (page // TILE) + position % page // TILE).reshape(1, -1).to(torch.int32)

    @abstractmethod
    def blocks(self, layer: int) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """View a layer's keys and values as prefill's attention reads them, [blocks, KV heads of a group, block,
        head_dim], without a copy: one head of a plain cache, which serves as pages so."""

    def fill(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, places: Mapping[int, ttnn.Tensor]) -> None:
        """Write a prefill chunk, bfloat16 [1, kv heads, rows, head_dim] each, at `places` by KV heads of a chip, which
        the device reads."""
        for cache, new in ((self.keys[layer], keys), (self.values[layer], values)):
            # The op takes a start of whole blocks and ttnn.fill_cache one of the host: so a block is a tile of a head.
            (pages, heads, page, width), rows = cache.shape, math.prod(tuple(new.shape)[:3])
            tiles = ttnn.reshape(cache, (pages * heads * page // TILE, 1, TILE, width))
            stored = ttnn.reshape(self._stored(new), (1, 1, rows, width))
            ttnn.experimental.paged_fill_cache(tiles, stored, places[heads], batch_idx=0)

    def update(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, positions: ttnn.Tensor) -> None:
        """Write one token per user, [1, users, kv heads, head_dim] on one core per user, at int32 [users] `positions`;
        -1 skips a user."""
        for cache, new in ((self.keys[layer], keys), (self.values[layer], values)):
            ttnn.experimental.paged_update_cache(cache, new, update_idxs_tensor=positions, page_table=self.table)

    def write_nodes(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, prefix: ttnn.Tensor, nodes: int) -> None:
        """Write the nodes of all users' token trees, bfloat16 [1, kv heads, users * nodes, head_dim], a user's node n
        at position prefix + n. prefix: int32 [users], -1 skips a user."""
        new = self._stored(keys), self._stored(values)
        write_nodes(self.keys[layer], self.values[layer], *new, prefix, nodes, page_table=self.table)

    def commit(self, prefix: ttnn.Tensor, path: ttnn.Tensor, nodes: int, first_column: int = 0) -> None:
        """Move the accepted path of every user's tree to the positions after its root, in all layers; for the arguments
        see `commit_path`. Rejected nodes stay after it until later tokens overwrite them."""
        caches = [*self.keys, *self.values]
        commit_path(caches, prefix, path, nodes, first_column=first_column, page_table=self.table)

    def _stored(self, new: ttnn.Tensor) -> ttnn.Tensor:
        return new if new.dtype == self.dtype else ttnn.typecast(new, self.dtype)


class KVCache(KVCacheBase):
    """keys, values: [users, kv_heads / tp, capacity, head_dim], TILE, in DRAM.

    capacity: a multiple of 32. zeroed=False leaves contents undefined, which decode attention must not read. Raises
    ValueError.
    """

    def __init__(self, site: Site, dtype: str, users: int, capacity: int, zeroed: bool) -> None:
        check_users(users)
        config, most = site.config, most_positions(site.config, MAX_NODES)
        if capacity < TILE or capacity % TILE or capacity > most:
            raise ValueError(
                f"cache capacity must be a multiple of {TILE} up to {most}, the context of {config.name} and the nodes "
                f"of a step; got {capacity}"
            )
        self.capacity, self.block = capacity, cache_block(capacity)
        super().__init__(site, dtype, (users, site.kv_heads, capacity, config.head_dim), zeroed)

    def page_table(self, user: int) -> torch.Tensor:
        heads = self.site.kv_heads
        entries = heads * self.capacity // self.block
        return _padded(torch.arange(user * entries, (user + 1) * entries).view(heads, -1))

    def _pages_of(self, user: int) -> torch.Tensor:
        return torch.tensor([user])

    def blocks(self, layer: int) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        keys = self.keys[layer]
        shape = (math.prod(tuple(keys.shape)[:3]) // self.block, 1, self.block, keys.shape[3])
        return ttnn.reshape(keys, shape), ttnn.reshape(self.values[layer], shape)


class PagedKVCache(KVCacheBase):
    """keys, values: one tensor per layer, [blocks, kv_heads / tp, block, head_dim] on each chip, TILE, in DRAM.

    capacity: the most positions of a user, a multiple of `block`, which is 32, 64 or 128. Block 0 belongs to nobody:
    what is padded or skipped may be written there, and entries of the page table after a user's last position name it.
    Raises ValueError.
    """

    def __init__(
        self, site: Site, dtype: str, users: int, capacity: int, blocks: int, block: int, zeroed: bool
    ) -> None:
        check_users(users)
        if block not in BLOCKS:
            raise ValueError(f"a block has {', '.join(map(str, BLOCKS))} positions, got {block}")
        if capacity < block or capacity % block:
            raise ValueError(f"the capacity must be a multiple of the block of {block} positions, got {capacity}")
        if blocks < 2:
            raise ValueError(f"a paged cache needs a block besides block 0, got {blocks}")
        super().__init__(site, dtype, (blocks, site.kv_heads, block, site.config.head_dim), zeroed)
        self.users, self.block_count, self.width = users, blocks, capacity // block
        self._host = torch.zeros(users, self.width, dtype=torch.int32)
        self.table: ttnn.Tensor = self._put(self._host)

    def set_page_table(self, table: torch.Tensor) -> None:
        """Give blocks to users: integers [users, up to `width`], in the order of positions. The device's table keeps
        its address; it is written if it differs. Raises ValueError for another shape or a block that the cache
        lacks."""
        if table.ndim != 2 or table.shape[0] != self.users or table.shape[1] > self.width:
            raise ValueError(f"the page table must be [{self.users}, {self.width}], it is {list(table.shape)}")
        if table.numel() and not 0 <= int(table.min()) <= int(table.max()) < self.block_count:
            raise ValueError(f"the cache has blocks 0 to {self.block_count - 1}, the page table names {table.tolist()}")
        whole = torch.nn.functional.pad(table.to(torch.int32), (0, self.width - table.shape[1]))
        if not torch.equal(whole, self._host):
            self._host = whole
            ttnn.copy_host_to_device_tensor(self._put(whole, on_device=False), self.table)

    def blocks(self, layer: int) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        return self.keys[layer], self.values[layer]

    def page_table(self, user: int) -> torch.Tensor:
        return _padded(self._host[user : user + 1])

    def _pages_of(self, user: int) -> torch.Tensor:
        return self._host[user]

    def _put(self, table: torch.Tensor, on_device: bool = True) -> ttnn.Tensor:
        return self.site.shape.put(self.site.mesh, table, "int32", "ROW_MAJOR_LAYOUT", on_device=on_device)


def _padded(table: torch.Tensor) -> torch.Tensor:
    """Pad a page table's rows to whole lines of 32 bytes, which prefill's attention wants."""
    return torch.nn.functional.pad(table, (0, -table.shape[1] % ENTRY_ALIGNMENT)).to(torch.int32)
