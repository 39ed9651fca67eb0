# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Exact attention in decode steps: ttnn's op or our flash decode, chosen by the decode sharding."""

from __future__ import annotations

import ttnn

from tt_kernels.speculative_flash_decode.op import flash_decode

from ...config import LlamaConfig
from ..kv_cache import cache_block
from ..linear import kernel_config
from ..parallel.mesh import TILE, MeshShape
from ..sharding.config import FLASH_DECODE, ShardedDecodeConfig, check_decode_sharding
from .base import DecodeAttention

# Keys per flash decode chunk, as measured (perf.ops.bench_decode_attention); at most the whole cache.
CHUNK = 128


class ExactDecodeAttention(DecodeAttention):
    """Attention that verifies nothing and can decode token trees."""

    def check_trees(self) -> None:
        """Accept token trees."""


class StockDecodeAttention(ExactDecodeAttention):
    """ttnn's flash decode. chunk_size: keys per core and chunk, a multiple of 32 that divides the capacity."""

    takes_shards = True

    def __init__(self, mesh: ttnn.MeshDevice, config: LlamaConfig, chunk_size: int) -> None:
        grid = mesh.compute_with_storage_grid_size()
        self._scale = config.head_dim**-0.5
        self._program = ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=(grid.x, grid.y),
            q_chunk_size=TILE,
            k_chunk_size=chunk_size,
            exp_approx_mode=False,
        )

    def __call__(self, layer, q, keys, values, positions, page_table=None):
        attend, pages = ttnn.transformer.scaled_dot_product_attention_decode, {}
        if page_table is not None:
            attend = ttnn.transformer.paged_scaled_dot_product_attention_decode
            pages = {"page_table_tensor": page_table}
        return attend(
            q,
            keys,
            values,
            cur_pos_tensor=positions,
            scale=self._scale,
            program_config=self._program,
            compute_kernel_config=kernel_config("bfloat8_b"),
            memory_config=ttnn.L1_MEMORY_CONFIG if q.is_sharded() else ttnn.DRAM_MEMORY_CONFIG,
            **pages,
        )


class FlashDecodeAttention(ExactDecodeAttention):
    """Our flash decode, with its result in L1. capacity: of the cache. For limits see `flash_decode`."""

    def __init__(self, config: LlamaConfig, capacity: int) -> None:
        self._chunk, self._scale = min(CHUNK, capacity), config.head_dim**-0.5

    def __call__(self, layer, q, keys, values, positions, page_table=None):
        return flash_decode(
            q,
            keys,
            values,
            positions,
            chunk_size=self._chunk,
            page_table=page_table,
            scale=self._scale,
            memory_config=ttnn.L1_MEMORY_CONFIG,
        )


def exact_attention(
    mesh: ttnn.MeshDevice,
    mesh_shape: MeshShape,
    config: LlamaConfig,
    *,
    users: int,
    capacity: int,
    kv_cache: str,
    decode_sharding: str,
    block: int | None = None,
) -> ExactDecodeAttention:
    """Choose the exact attention of a model. kv_cache: the cache's dtype. block: of a paged cache. decode_sharding: one
    of DECODE_SHARDINGS; interleaved, the reference for sharded, uses the stock op. Raises ShardingError, MeshError."""
    if (
        check_decode_sharding(decode_sharding) == "sharded"
        and ShardedDecodeConfig.of(config, mesh_shape, users).exact_attention(kv_cache).op == FLASH_DECODE
    ):
        return FlashDecodeAttention(config, capacity)
    return StockDecodeAttention(mesh, config, block or cache_block(capacity))
