# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention of decode steps that verifies nothing: exact attention, and the guess of the sink and static policies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import ttnn

from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode, guess_flash_decode
from tt_kernels.tree_attention.op import tree_attention

from ..config import LlamaConfig
from ..results import AttentionStatistics
from .kv_cache import cache_block
from .mesh import TILE, MeshShape
from .modules import kernel_config
from .sharding import FLASH_DECODE, ShardedDecodeConfig, check_decode_sharding


class TokenHeads(NamedTuple):
    """One token per user at its position: bfloat16 [1, users, heads, head_dim], TILE. queries: as attention takes them.
    keys, values: the chip's KV heads, in L1, one core per user. Or the nodes of users' trees: [1, heads, users * nodes,
    head_dim] each, in DRAM."""

    queries: ttnn.Tensor
    keys: ttnn.Tensor
    values: ttnn.Tensor


class DecodeAttention(ABC):
    """Attention of one token per user over its cache. The hooks around it do nothing except in speculation.

    takes_shards: whether queries may also be sharded, one core per user; the result is then interleaved in L1.
    """

    takes_shards = False

    def reset_priority(self) -> None:
        """Called before the first layer."""

    def choose_tiles(self, positions: ttnn.Tensor) -> None:
        """Called before the first layer, with the step's positions, int32 [users]."""

    def exchange_inputs(self, residual: ttnn.Tensor, heads: TokenHeads) -> None:
        """Called before each layer's cache is written, with the layer's input, bfloat16 [1, 1, users (* nodes), hidden
        / tp], and the heads made from it; may change them in place."""

    @abstractmethod
    def __call__(
        self,
        layer: int,
        q: ttnn.Tensor,
        keys: ttnn.Tensor,
        values: ttnn.Tensor,
        positions: ttnn.Tensor,
        page_table: ttnn.Tensor | None = None,
    ) -> ttnn.Tensor:
        """q: bfloat16 [1, users, heads / tp, head_dim], TILE, interleaved; keys, values: the layer's cache with the new
        token written; positions: int32 [users], -1 skips a user; page_table: of a paged cache, int32 [users, blocks].
        Returns [1, users, heads / tp, head_dim]."""

    def check_trees(self) -> None:
        """Raises ValueError if this attention cannot decode token trees."""
        raise ValueError(
            f"{type(self).__name__} guesses one result per user and step; token trees need attention that is exact "
            "or verifies its guesses"
        )

    def attend_tree(
        self,
        layer: int,
        q: ttnn.Tensor,
        keys: ttnn.Tensor,
        values: ttnn.Tensor,
        prefix: ttnn.Tensor,
        intervals: ttnn.Tensor,
        page_table: ttnn.Tensor | None = None,
    ) -> ttnn.Tensor:
        """q: bfloat16 [1, heads / tp, users * nodes, head_dim]; keys, values: the layer's cache with the nodes written;
        prefix, intervals, page_table: see `tree_attention`. Returns q's shape."""
        self.check_trees()
        return tree_attention(q, keys, values, prefix, intervals, page_table=page_table)

    def gate(self, layer: int) -> AbstractContextManager[None]:
        """Enclose the launches from a layer's attention to the next layer's queries, keys and values."""
        return nullcontext()

    def exchange_output(self, residual: ttnn.Tensor) -> None:
        """Called after the last layer with its output, shaped as its input; may change it in place."""

    def guard_tokens(self, tokens: ttnn.Tensor) -> None:
        """Overwrite the chosen tokens, uint32 [1, users], where the step went wrong on a chip."""

    def guard_result(self, result: ttnn.Tensor) -> None:
        """Overwrite a verification result (speculative_sampling) where the step went wrong on a chip."""

    def check(self) -> None:
        """Raises if a step went wrong on a chip; waits for the device if it has to look there."""

    def reset(self) -> None:
        """Forget what was counted; called before each generation."""

    def statistics(self) -> AttentionStatistics | None:
        """Return what was counted since `reset`, None if nothing is verified; waits for the device."""
        return None


# Keys per flash decode chunk, as measured (python -m perf.ops sharded_decode); at most the whole cache.
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


class GuessAttention(DecodeAttention):
    """Take the guess on `layers` and `exact` attention on the others.

    layers: None for all (sink), else those of the static policy. chunk_size: tokens of the guess at either end, a
    multiple of 32. Every chip runs on its own, so any mesh will do; only the guess's tokens are read. Raises ValueError
    for a layer that the model lacks.
    """

    def __init__(
        self,
        config: LlamaConfig,
        chunk_size: int,
        exact: DecodeAttention,
        layers: Iterable[int] | None = None,
        program: ProgramConfig | None = None,
    ) -> None:
        self.chunk_size, self.exact, self.program = chunk_size, exact, program
        count = config.num_hidden_layers
        self.layers = frozenset(range(count)) if layers is None else frozenset(layers)
        if beyond := sorted(layer for layer in self.layers if not 0 <= layer < count):
            raise ValueError(f"static attention names layers {beyond} of a model with {count} layers")
        self._scale = config.head_dim**-0.5

    def __call__(
        self,
        layer: int,
        q: ttnn.Tensor,
        keys: ttnn.Tensor,
        values: ttnn.Tensor,
        positions: ttnn.Tensor,
        page_table: ttnn.Tensor | None = None,
    ) -> ttnn.Tensor:
        if layer not in self.layers:
            return self.exact(layer, q, keys, values, positions, page_table)
        return guess_flash_decode(
            q,
            keys,
            values,
            positions,
            chunk_size=self.chunk_size,
            page_table=page_table,
            scale=self._scale,
            program_config=self.program,
        )
