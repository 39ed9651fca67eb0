# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Exact attention of decode steps: ttnn's op or our flash decode, as the decode plan chooses."""

from __future__ import annotations

import ttnn

from tt_kernels.speculative_flash_decode.op import flash_decode

from ...config import LlamaConfig
from ..kv_cache import cache_block
from ..linear import kernel_config
from ..parallel.mesh import TILE, MeshShape
from ..sharding.config import FLASH_DECODE, ShardedDecodeConfig, check_plan
from .base import DecodeAttention

# Keys that flash decode takes at once, as measured (perf.ops.bench_plan_attention); a shorter cache's whole.
CHUNK = 128


class ExactDecodeAttention(DecodeAttention):
    """Verifies nothing, and token trees are decoded with it."""

    def check_trees(self) -> None:
        """Takes them."""


class StockDecodeAttention(ExactDecodeAttention):
    """ttnn's flash decode. chunk_size: keys a core takes at once; 32 divides it, and it the capacity."""

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

    def __call__(self, layer, q, keys, values, positions):
        return ttnn.transformer.scaled_dot_product_attention_decode(
            q,
            keys,
            values,
            cur_pos_tensor=positions,
            scale=self._scale,
            program_config=self._program,
            compute_kernel_config=kernel_config("bfloat8_b"),
            memory_config=ttnn.L1_MEMORY_CONFIG if q.is_sharded() else ttnn.DRAM_MEMORY_CONFIG,
        )


class FlashDecodeAttention(ExactDecodeAttention):
    """Our flash decode, its result in L1. capacity: of the cache; the op's limits are `flash_decode`'s."""

    def __init__(self, config: LlamaConfig, capacity: int) -> None:
        self._chunk, self._scale = min(CHUNK, capacity), config.head_dim**-0.5

    def __call__(self, layer, q, keys, values, positions):
        return flash_decode(
            q,
            keys,
            values,
            positions,
            chunk_size=self._chunk,
            scale=self._scale,
            memory_config=ttnn.L1_MEMORY_CONFIG,
        )


def exact_attention(
    mesh: ttnn.MeshDevice,
    plan: MeshShape,
    config: LlamaConfig,
    *,
    users: int,
    capacity: int,
    kv_cache: str,
    layout: str,
) -> ExactDecodeAttention:
    """Of a model with as many users and positions. kv_cache: the cache's dtype. layout: a name of DECODE_PLANS; the
    simple plan, the oracle of the fast one, has the stock op. Errors: ShardingError, MeshError."""
    if (
        check_plan(layout) == "fast"
        and ShardedDecodeConfig.of(config, plan, users).exact_attention(kv_cache).op == FLASH_DECODE
    ):
        return FlashDecodeAttention(config, capacity)
    return StockDecodeAttention(mesh, config, cache_block(capacity))
