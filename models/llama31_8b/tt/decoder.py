# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A decoder layer. Between layers a chip keeps hidden / tp columns of the residual."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import ttnn

from .attention import Attention
from .decode_attention.base import DecodeAttention, TokenHeads
from .kv_cache import KVCacheBase
from .mlp import MLP
from .parallel.collectives import TpCollectives, gather, reduce
from .parallel.mesh import MeshShape
from .rms_norm import RMSNorm
from .rope import Angles

# Called with a layer's number and its input, bfloat16 [1, 1, rows, hidden], the same on every chip of a TP group.
OnLayerInput = Callable[[int, ttnn.Tensor], None]


class DecoderLayer:
    """Attention and MLP, each after a norm and added to the residual, with two all-gathers and two reduce-scatters per
    layer, as in tables 5 to 7 of the ALSpec paper. Norms and products see all columns."""

    def __init__(
        self,
        mesh_shape: MeshShape,
        collectives: TpCollectives,
        attention_norm: RMSNorm,
        attention: Attention,
        mlp_norm: RMSNorm,
        mlp: MLP,
    ) -> None:
        self.mesh_shape, self.collectives = mesh_shape, collectives
        self.attention_norm, self.attention = attention_norm, attention
        self.mlp_norm, self.mlp = mlp_norm, mlp

    def with_attention(self, decode_attention: DecodeAttention) -> DecoderLayer:
        """Return a layer that shares the weights and has another attention in decode steps."""
        other = copy(self)
        other.attention = copy(self.attention)
        other.attention.decode_attention = decode_attention
        return other

    def project_qkv(self, x: ttnn.Tensor, angles: Angles) -> TokenHeads:
        """Make the new tokens' queries, keys and values from x: bfloat16 [1, 1, users, hidden / tp] in L1, placed by
        the decode sharding."""
        return self.attention.project_qkv(self.attention_norm.decode(self.collectives.gather(x)), angles)

    def attend(self, heads: TokenHeads, cache: KVCacheBase, positions: ttnn.Tensor) -> ttnn.Tensor:
        """Write the cache and attend to it, see Attention.attend."""
        return self.attention.attend(heads, cache, positions)

    def after_attention(self, x: ttnn.Tensor, heads_output: ttnn.Tensor) -> ttnn.Tensor:
        """Finish the layer after `attend`. x: the input of `project_qkv`, which is freed. Returns x's shape."""
        return self.add_attention_and_mlp(x, self.collectives.reduce(self.attention.project_output(heads_output)))

    def attention_update(
        self, gathered: ttnn.Tensor, cache: KVCacheBase, positions: ttnn.Tensor, angles: Angles
    ) -> ttnn.Tensor:
        """Return what the attention adds to the residual, [1, 1, users, hidden / tp], for the gathered input, bfloat16
        [1, 1, users, hidden]. Writes the cache."""
        normed = self.attention_norm.decode(gathered)
        return self.collectives.reduce(self.attention.decode(normed, cache, positions, angles))

    def add_attention_and_mlp(self, x: ttnn.Tensor, update: ttnn.Tensor) -> ttnn.Tensor:
        """Add the attention's update to a decode step's residual x, which is freed, then the MLP."""
        x = _add_into(x, update, x.memory_config())
        partial = self.mlp.decode(self.mlp_norm.decode(self.collectives.gather(x)))
        return _add_into(x, self.collectives.reduce(partial), x.memory_config())

    def prefill(
        self,
        x,
        cache: KVCacheBase,
        user: int,
        start: int,
        begin: ttnn.Tensor,
        angles: Angles,
        on_input: OnLayerInput | None = None,
    ) -> ttnn.Tensor:
        """x: bfloat16 [1, 1, tokens, hidden / tp] in DRAM -> the same. on_input: called with the gathered input. For
        the others see Attention.prefill."""
        normed = self.attention_norm(self._gathered(x, on_input))
        x = self._add(x, self.attention.prefill(normed, cache, user, start, begin, angles), ttnn.DRAM_MEMORY_CONFIG)
        return self._feed_forward(x, ttnn.DRAM_MEMORY_CONFIG)

    def project_tree(self, x: ttnn.Tensor, angles: Angles, on_input: OnLayerInput | None = None) -> TokenHeads:
        """Make the nodes' queries, keys and values from x: bfloat16 [1, 1, users * nodes, hidden / tp] in DRAM.
        on_input: called with the gathered input."""
        return self.attention.project_tree(self.attention_norm(self._gathered(x, on_input)), angles)

    def attend_tree(
        self, heads: TokenHeads, cache: KVCacheBase, prefix: ttnn.Tensor, intervals: ttnn.Tensor
    ) -> ttnn.Tensor:
        """Write the cache and attend to it, see Attention.attend_tree."""
        return self.attention.attend_tree(heads, cache, prefix, intervals)

    def after_tree_attention(self, x: ttnn.Tensor, heads_output: ttnn.Tensor) -> ttnn.Tensor:
        """Finish the layer after `attend_tree`. x: the input of `project_tree`, which is freed. Returns x's shape."""
        x = self._add(x, self.attention.project_tree_output(heads_output), ttnn.DRAM_MEMORY_CONFIG)
        return self._feed_forward(x, ttnn.DRAM_MEMORY_CONFIG)

    def _gathered(self, x: ttnn.Tensor, on_input: OnLayerInput | None) -> ttnn.Tensor:
        gathered = gather(x, self.mesh_shape)
        if on_input is not None:
            on_input(self.attention.layer, gathered)
        return gathered

    def _feed_forward(self, x: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
        return self._add(x, self.mlp(self.mlp_norm(gather(x, self.mesh_shape)), memory), memory)

    def _add(self, x: ttnn.Tensor, partial: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
        return _add_into(x, reduce(partial, self.mesh_shape), memory)


def _add_into(x: ttnn.Tensor, other: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
    out = ttnn.add(x, other, memory_config=memory)
    ttnn.deallocate(x)
    return out
