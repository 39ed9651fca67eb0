# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A decoder layer. Between layers a chip keeps hidden / tp columns of the residual."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import ttnn

from .attention import Attention
from .decode_attention.base import DecodeAttention, TokenHeads
from .kv_cache import KVCache
from .mlp import MLP
from .parallel.collectives import TpCollectives, gather, reduce
from .parallel.mesh import MeshShape
from .rms_norm import RMSNorm
from .rope import Angles

# Sees a layer's number and what enters it, bfloat16 [1, 1, rows, hidden], the same on every chip of a row.
Entering = Callable[[int, ttnn.Tensor], None]


class DecoderLayer:
    """Attention and MLP, each behind a norm and added to the residual: two gathers and two reductions a
    layer, as in tables 5 to 7 of the ALSpec paper. Norms and products see all columns."""

    def __init__(
        self,
        plan: MeshShape,
        collectives: TpCollectives,
        attention_norm: RMSNorm,
        attention: Attention,
        mlp_norm: RMSNorm,
        mlp: MLP,
    ) -> None:
        self.plan, self.collectives = plan, collectives
        self.attention_norm, self.attention = attention_norm, attention
        self.mlp_norm, self.mlp = mlp_norm, mlp

    def attending(self, attend: DecodeAttention) -> DecoderLayer:
        """The same weights with another attention in decode steps."""
        other = copy(self)
        other.attention = copy(self.attention)
        other.attention.attend = attend
        return other

    def before_attention(self, x: ttnn.Tensor, angles: Angles) -> TokenHeads:
        """x: bfloat16 [1, 1, users, hidden / tp] in L1, where the plan has it -> the new tokens' queries, keys and
        values."""
        return self.attention.heads_of(self.attention_norm.decode(self.collectives.gather(x)), angles)

    def attended(self, heads: TokenHeads, cache: KVCache, positions: ttnn.Tensor) -> ttnn.Tensor:
        """Attention alone: as of Attention.attended. Writes the cache."""
        return self.attention.attended(heads, cache, positions)

    def after_attention(self, x: ttnn.Tensor, attended: ttnn.Tensor) -> ttnn.Tensor:
        """x: of `before_attention`, which is freed -> the layer's output, of its shape."""
        return self._rest(x, self.collectives.reduce(self.attention.project(attended)))

    def attention_share(
        self, whole: ttnn.Tensor, cache: KVCache, positions: ttnn.Tensor, angles: Angles
    ) -> ttnn.Tensor:
        """What the attention adds to a chip's columns of the residual when `whole`, bfloat16 [1, 1, users, hidden],
        enters the layer: [1, 1, users, hidden / tp]."""
        normed = self.attention_norm.decode(whole)
        return self.collectives.reduce(self.attention.decode(normed, cache, positions, angles))

    def rest_after(self, x: ttnn.Tensor, attended: ttnn.Tensor) -> ttnn.Tensor:
        """A decode step's residual x with `attended` of its shape added, and the MLP behind it."""
        return self._rest(x, attended)

    def _rest(self, x: ttnn.Tensor, attended: ttnn.Tensor) -> ttnn.Tensor:
        x = _added(x, attended, x.memory_config())
        partial = self.mlp.decode(self.mlp_norm.decode(self.collectives.gather(x)))
        return _added(x, self.collectives.reduce(partial), x.memory_config())

    def prefill(
        self,
        x,
        cache: KVCache,
        user: int,
        start: int,
        begin: ttnn.Tensor,
        angles: Angles,
        entering: Entering | None = None,
    ) -> ttnn.Tensor:
        """x: bfloat16 [1, 1, tokens, hidden / tp] in DRAM -> the same. entering: sees the gathered input. The others as
        of Attention.prefill."""
        normed = self.attention_norm(self._entered(x, entering))
        x = self._add(x, self.attention.prefill(normed, cache, user, start, begin, angles), ttnn.DRAM_MEMORY_CONFIG)
        return self._feed_forward(x, ttnn.DRAM_MEMORY_CONFIG)

    def tree(
        self,
        x: ttnn.Tensor,
        cache: KVCache,
        prefix: ttnn.Tensor,
        intervals: ttnn.Tensor,
        angles: Angles,
        entering: Entering | None = None,
    ) -> ttnn.Tensor:
        """x: bfloat16 [1, 1, users * nodes, hidden / tp] in DRAM -> the same. entering: sees the gathered input. The
        others as of Attention.tree."""
        normed = self.attention_norm(self._entered(x, entering))
        partial = self.attention.tree(normed, cache, prefix, intervals, angles)
        return self._feed_forward(self._add(x, partial, ttnn.DRAM_MEMORY_CONFIG), ttnn.DRAM_MEMORY_CONFIG)

    def _entered(self, x: ttnn.Tensor, entering: Entering | None) -> ttnn.Tensor:
        whole = gather(x, self.plan)
        if entering is not None:
            entering(self.attention.layer, whole)
        return whole

    def _feed_forward(self, x: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
        return self._add(x, self.mlp(self.mlp_norm(gather(x, self.plan)), memory), memory)

    def _add(self, x: ttnn.Tensor, partial: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
        return _added(x, reduce(partial, self.plan), memory)


def _added(x: ttnn.Tensor, other: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
    out = ttnn.add(x, other, memory_config=memory)
    ttnn.deallocate(x)
    return out
