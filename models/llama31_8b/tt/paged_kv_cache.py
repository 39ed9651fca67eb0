# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The KV cache in blocks that a page table gives to users: for serving, where sequences come, grow and share
prefixes."""

from __future__ import annotations

import torch
import ttnn

from tt_kernels.common.page_table import BLOCKS
from tt_kernels.tree_cache.op import commit_path, write_nodes

from ..config import LlamaConfig
from .kv_cache import ENTRY_ALIGNMENT, KVCacheBase, check_users
from .parallel.mesh import MeshShape


class PagedKVCache(KVCacheBase):
    """keys, values: one tensor per layer, [blocks, kv_heads / tp, block, head_dim] on each chip, TILE, in DRAM.

    capacity: the most positions of a user, a multiple of `block`, which is 32, 64 or 128. Block 0 belongs to nobody:
    what is padded or skipped may be written there, and entries of the page table after a user's last position name it.
    Raises ValueError.
    """

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        mesh_shape: MeshShape,
        config: LlamaConfig,
        dtype: str,
        users: int,
        capacity: int,
        blocks: int,
        block: int,
        zeroed: bool = True,
    ) -> None:
        check_users(users)
        if block not in BLOCKS:
            raise ValueError(f"a block has {', '.join(map(str, BLOCKS))} positions, got {block}")
        if capacity < block or capacity % block:
            raise ValueError(f"the capacity must be a multiple of the block of {block} positions, got {capacity}")
        if blocks < 2:
            raise ValueError(f"a paged cache needs a block besides block 0, got {blocks}")
        heads = config.num_key_value_heads // mesh_shape.tp
        shape = (blocks, heads, block, config.head_dim)
        super().__init__(mesh, mesh_shape, config, dtype, shape, zeroed)
        self.mesh, self.mesh_shape = mesh, mesh_shape
        self.users, self.capacity, self.block, self.block_count = users, capacity, block, blocks
        self.width = capacity // block
        self._host = torch.zeros(users, self.width, dtype=torch.int32)
        self.table = self._put(self._host)
        # Of the prompt that is being cached: its user's row, and that row from the chunk's first block on.
        self._row, self._rest = self._put(self._padded(self._host[:1])), self._put(self._host[:1])
        self._row_user: int | None = None
        self._rest_of: tuple[int, int] | None = None

    def set_page_table(self, table: torch.Tensor) -> None:
        """Give blocks to users: integers [users, up to `width`], in the order of positions. The device's table keeps
        its address; it is written if it differs. Raises ValueError for another shape or a block that the cache
        lacks."""
        if table.ndim != 2 or table.shape[0] != self.users or table.shape[1] > self.width:
            raise ValueError(f"the page table must be [{self.users}, {self.width}], it is {list(table.shape)}")
        if table.numel() and not 0 <= int(table.min()) <= int(table.max()) < self.block_count:
            raise ValueError(f"the cache has blocks 0 to {self.block_count - 1}, the page table names {table.tolist()}")
        whole = torch.nn.functional.pad(table.to(torch.int32), (0, self.width - table.shape[1]))
        if torch.equal(whole, self._host):
            return
        self._host = whole
        ttnn.copy_host_to_device_tensor(self._put(self._host, on_device=False), self.table)
        self._row_user = self._rest_of = None

    def blocks(self, layer: int) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        return self.keys[layer], self.values[layer]

    def page_table(self, user: int) -> ttnn.Tensor:
        if self._row_user != user:
            row = self._padded(self._host[user : user + 1])
            ttnn.copy_host_to_device_tensor(self._put(row, on_device=False), self._row)
            self._row_user = user
        return self._row

    def query_groups(self, heads: int) -> tuple[int, int]:
        return 1, heads

    def fill(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, user: int, start: int) -> None:
        if start % self.block:
            raise ValueError(f"a chunk starts a block of {self.block} positions, this one at {start}")
        if self._rest_of != (user, start):
            rest = torch.zeros_like(self._host[:1])
            rest[0, : self.width - start // self.block] = self._host[user, start // self.block :]
            ttnn.copy_host_to_device_tensor(self._put(rest, on_device=False), self._rest)
            self._rest_of = (user, start)
        for cache, new in ((self.keys[layer], keys), (self.values[layer], values)):
            ttnn.experimental.paged_fill_cache(cache, self._stored(new), self._rest, batch_idx=0)

    def update(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, positions: ttnn.Tensor) -> None:
        for cache, new in ((self.keys[layer], keys), (self.values[layer], values)):
            ttnn.experimental.paged_update_cache(cache, new, update_idxs_tensor=positions, page_table=self.table)

    def update_together(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, positions: ttnn.Tensor) -> None:
        ttnn.experimental.paged_fused_update_cache(
            self.keys[layer], keys, self.values[layer], values, update_idxs_tensor=positions, page_table=self.table
        )

    def write_nodes(self, layer: int, keys: ttnn.Tensor, values: ttnn.Tensor, prefix: ttnn.Tensor, nodes: int) -> None:
        new = self._stored(keys), self._stored(values)
        write_nodes(self.keys[layer], self.values[layer], *new, prefix, nodes, page_table=self.table)

    def commit(self, prefix: ttnn.Tensor, path: ttnn.Tensor, nodes: int, first_column: int = 0) -> None:
        caches = [*self.keys, *self.values]
        commit_path(caches, prefix, path, nodes, first_column=first_column, page_table=self.table)

    def _padded(self, row: torch.Tensor) -> torch.Tensor:
        """Pad a row to whole lines of 32 bytes, which prefill's attention wants."""
        return torch.nn.functional.pad(row, (0, -row.shape[1] % ENTRY_ALIGNMENT))

    def _put(self, table: torch.Tensor, on_device: bool = True) -> ttnn.Tensor:
        return self.mesh_shape.put(self.mesh, table, "int32", "ROW_MAJOR_LAYOUT", on_device=on_device)
