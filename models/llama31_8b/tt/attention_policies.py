# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention of decode steps that verifies nothing: exact attention, and the guess alone, by which a model drafts for
itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import ttnn

from tt_kernels.speculative_flash_decode.op import flash_decode, guess_flash_decode
from tt_kernels.tree_attention.op import tree_attention

from ..config import LlamaConfig
from .kv_cache import LayerCache
from .mesh import TILE
from .modules import attention_program, kernel_config


class StepInputs(NamedTuple):
    """The inputs of a decode step over a tree of tokens per user, as tensors on the device so that a captured trace
    stays valid; all ROW_MAJOR, the same on every chip. Without intervals a tree is one token.

    tokens: uint32 [1, users * nodes], user by user. positions: int32 [users], of each user's first node, which is the
    number of cached tokens before it; -1 skips a user. angles: uint32 [1, users * nodes], each node's position in its
    text, 0 for skipped users. intervals: int32 [users, 2, nodes], when a depth-first walk enters and leaves each node,
    see `tree_attention`.
    """

    tokens: ttnn.Tensor
    positions: ttnn.Tensor
    angles: ttnn.Tensor
    intervals: ttnn.Tensor | None = None

    @property
    def nodes(self) -> int:
        return 1 if self.intervals is None else self.intervals.shape[2]


class AttentionPolicy(ABC):
    """Attention of a decode step over each user's cache, in which the step's keys and values are written already.

    takes_shards: whether queries of one token per user may also be sharded, one core per user; the result is then
    interleaved in L1. takes_trees: whether it decodes token trees.
    """

    takes_shards = False
    takes_trees = False

    def __call__(self, layer: int, q: ttnn.Tensor, cache: LayerCache, inputs: StepInputs) -> ttnn.Tensor:
        """Attend by the op for one token per user, or the one for trees.

        Args:
            layer: the layer's number. cache: of the layer.
            q: bfloat16, TILE; [1, users, heads / tp, head_dim] for one token, else [1, heads / tp, users * nodes,
                head_dim]; interleaved unless `takes_shards`.
            inputs: of the step.

        Returns:
            The attention output in q's shape.
        """
        return (self.attend if inputs.intervals is None else self.attend_tree)(layer, q, cache, inputs)

    @abstractmethod
    def attend(self, layer: int, q: ttnn.Tensor, cache: LayerCache, inputs: StepInputs) -> ttnn.Tensor:
        """Attend with one token per user."""

    def attend_tree(self, layer: int, q: ttnn.Tensor, cache: LayerCache, inputs: StepInputs) -> ttnn.Tensor:
        """Attend with the nodes of users' trees. Raises ValueError if `takes_trees` is False."""
        self.check_trees()
        assert inputs.intervals is not None
        return tree_attention(
            q, cache.keys, cache.values, inputs.positions, inputs.intervals, page_table=cache.page_table
        )

    def check_trees(self) -> None:
        """Raise ValueError if this attention decodes no token trees."""
        if not self.takes_trees:
            raise ValueError(
                f"{type(self).__name__} guesses one result per user and step; token trees need attention that is "
                "exact or verifies its guesses"
            )


# Keys per flash decode chunk, as measured (by perf.ops sharded_decode until 6a5f93b0); at most the whole cache.
CHUNK = 128


class ExactAttention(AttentionPolicy):
    """Attention that verifies nothing and can decode token trees."""

    takes_trees = True


class StockAttention(ExactAttention):
    """ttnn's flash decode. chunk_size: keys per core and chunk, a multiple of 32 that divides the capacity."""

    takes_shards = True

    def __init__(self, mesh: ttnn.MeshDevice, config: LlamaConfig, chunk_size: int) -> None:
        self._scale = config.head_dim**-0.5
        self._program = attention_program(mesh, TILE, chunk_size)

    def attend(self, layer: int, q: ttnn.Tensor, cache: LayerCache, inputs: StepInputs) -> ttnn.Tensor:
        attend, pages = ttnn.transformer.scaled_dot_product_attention_decode, {}
        if cache.page_table is not None:
            attend = ttnn.transformer.paged_scaled_dot_product_attention_decode
            pages = {"page_table_tensor": cache.page_table}
        return attend(
            q,
            cache.keys,
            cache.values,
            cur_pos_tensor=inputs.positions,
            scale=self._scale,
            program_config=self._program,
            compute_kernel_config=kernel_config("bfloat8_b"),
            memory_config=ttnn.L1_MEMORY_CONFIG if q.is_sharded() else ttnn.DRAM_MEMORY_CONFIG,
            **pages,
        )


class FlashAttention(ExactAttention):
    """Our flash decode, with its result in L1. capacity: of the cache. For limits see `flash_decode`."""

    def __init__(self, capacity: int) -> None:
        self._options: dict[str, Any] = {"chunk_size": min(CHUNK, capacity), "memory_config": ttnn.L1_MEMORY_CONFIG}

    def attend(self, layer: int, q: ttnn.Tensor, cache: LayerCache, inputs: StepInputs) -> ttnn.Tensor:
        given = cache.keys, cache.values, inputs.positions
        return flash_decode(q, *given, page_table=cache.page_table, **self._options)


class GuessAttention(AttentionPolicy):
    """Take the guess on all layers, without a peer. chunk_size: tokens of the guess at either end, a multiple of 32.
    Every chip runs on its own, so any mesh will do; only the guess's tokens are read."""

    def __init__(self, chunk_size: int) -> None:
        self.chunk_size = chunk_size

    def attend(self, layer: int, q: ttnn.Tensor, cache: LayerCache, inputs: StepInputs) -> ttnn.Tensor:
        given = cache.keys, cache.values, inputs.positions
        return guess_flash_decode(q, *given, chunk_size=self.chunk_size, page_table=cache.page_table)
