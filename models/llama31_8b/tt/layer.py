# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A decoder layer on a chip: attention and MLP, each after a norm and added to the residual. Norms and products see all
columns.

A decode step, a step over token trees and a prefill chunk are passes over the same layer in three parts: project
queries, keys and values; attend; the rest of the layer. Only attending differs between them, and where the rows are and
how a TP group adds up its partial sums (Rows).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import ttnn

from tt_kernels.tree_attention.op import prefill_attention

from .attention_policies import AttentionPolicy, StepInputs
from .kv_cache import KVCacheBase
from .layouts import Residual, Rows
from .mesh import TILE
from .modules import MLP, Angles, Projection, RMSNorm, Rope

# Called with a layer's number and its input, bfloat16 [1, 1, rows, hidden], the same on every chip of a TP group.
OnLayerInput = Callable[[int, ttnn.Tensor], None]


@dataclass(frozen=True)
class Pass:
    """What all layers of one pass share. on_input: called with each layer's gathered input."""

    cache: KVCacheBase
    layout: Rows
    angles: Angles
    policy: AttentionPolicy
    inputs: StepInputs
    on_input: OnLayerInput | None = None


class Chunk(NamedTuple):
    """What the chips read of a prefill chunk, a user's tokens after what is cached; all ROW_MAJOR and the same on every
    chip.

    tokens: uint32 [1, rows]. start: the first one's position, int32 [1]. angles: positions for the rotation, uint32
    [1, rows]. pages, places by KV heads of a chip: int32, see KVCacheBase. tile: where the last token's tile begins in
    [1, heads, rows, columns], int32 [4].
    """

    tokens: ttnn.Tensor
    start: ttnn.Tensor
    angles: ttnn.Tensor
    pages: ttnn.Tensor
    places: dict[int, ttnn.Tensor]
    tile: ttnn.Tensor

    @property
    def tensors(self) -> list[ttnn.Tensor]:
        return [self.tokens, self.start, self.angles, self.pages, *self.places.values(), self.tile]


class Attention:
    """A layer's attention between the norm and the output projection's partial sums, which are then added over the TP
    group.

    qkv: [1, 1, hidden, (heads + 2 kv heads) * head_dim / tp]; wo: [1, 1, heads * head_dim / tp, hidden], see
    WeightMap.
    """

    def __init__(self, layer: int, qkv: Projection, wo: Projection, rope: Rope) -> None:
        self.layer, self.qkv, self.wo, self.rope = layer, qkv, wo, rope

    def attend(self, fused: ttnn.Tensor, step: Pass) -> ttnn.Tensor:
        """Rotate queries and keys, which lie side by side with values, bfloat16 [1, 1, rows, (heads + 2 kv heads) *
        head_dim / tp], and are freed, write the cache and attend to it: queries' shape, interleaved."""
        q = step.layout.cached(fused, self.rope, step, self.layer)
        return step.policy(self.layer, q, step.cache.of_layer(self.layer), step.inputs)

    def attend_chunk(self, fused: ttnn.Tensor, chunk: Chunk, step: Pass) -> ttnn.Tensor:
        """Do `attend` with a prefill chunk: bfloat16 [1, heads, tokens, head_dim]."""
        q, k, v = step.layout.rotated(fused, self.rope, step.angles)
        step.cache.fill(self.layer, k, v, chunk.places)
        return prefill_attention(q, *step.cache.blocks(self.layer), chunk.start, chunk.pages)

    def keys_and_values(self, x: ttnn.Tensor, rows: Rows, angles: Angles) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """Compute what a pass over `Rows` caches: bfloat16 [1, kv heads, rows, head_dim] each, in DRAM."""
        fused = rows.multiply(self.qkv, x)
        _, k, v = rows.split(fused)
        ttnn.deallocate(fused)
        return self.rope.prefill(k, angles), v


class DecoderLayer:
    """One layer's modules."""

    def __init__(self, attention_norm: RMSNorm, attention: Attention, mlp_norm: RMSNorm, mlp: MLP) -> None:
        self.attention_norm, self.attention = attention_norm, attention
        self.mlp_norm, self.mlp = mlp_norm, mlp

    def project_qkv(self, entering: Residual, step: Pass) -> ttnn.Tensor:
        """Make the rows' queries, keys and values from the layer's input, see Attention.attend."""
        if entering.product is not None:
            return entering.product
        return step.layout.multiply(self.attention.qkv, self._normed(entering, step))

    def after_attention(
        self, x: ttnn.Tensor, output: ttnn.Tensor, step: Pass, following: DecoderLayer | None = None
    ) -> Residual:
        """Finish the layer. x: of the input of `project_qkv`; it is freed. following: the next layer."""
        partial = step.layout.multiply_heads(self.attention.wo, output)
        entering = step.layout.add(x, partial, (self.mlp_norm, self.mlp.gate_up))
        return self.add_mlp(entering, step.layout, following)

    def attention_update(self, x: ttnn.Tensor, step: Pass) -> ttnn.Tensor:
        """Return what the attention of a decode step adds to the residual x, bfloat16 [1, 1, users, hidden]. Writes the
        cache."""
        out = self.attention.attend(self.project_qkv(Residual(x), step), step)
        return step.layout.total(step.layout.multiply_heads(self.attention.wo, out))

    def prefill(self, x: ttnn.Tensor, chunk: Chunk, step: Pass, last_tile: bool = False) -> ttnn.Tensor:
        """Run the layer over a prefill chunk; x: the residual, which is freed. last_tile: after attention all but the
        last token's tile are left out. Returns x's shape, or that tile's."""
        fused = self.project_qkv(Residual(x), step)
        output = self.attention.attend_chunk(fused, chunk, step)
        if last_tile:
            x, output = _tile_of(x, chunk.tile), _tile_of(output, chunk.tile)
        return self.after_attention(x, output, step).x

    def cache_chunk(self, x: ttnn.Tensor, chunk: Chunk, step: Pass) -> None:
        """Do of `prefill` only what writes the cache."""
        keys, values = self.attention.keys_and_values(self._normed(Residual(x), step), step.layout, step.angles)
        step.cache.fill(self.attention.layer, keys, values, chunk.places)

    def _normed(self, entering: Residual, step: Pass) -> ttnn.Tensor:
        """Return the layer's normed input, for which a residual without it is gathered."""
        if entering.normed is not None:
            return entering.normed
        if step.on_input is None:
            return step.layout.normed(self.attention_norm, entering.x)
        gathered = step.layout.gather(entering.x)
        step.on_input(self.attention.layer, gathered)
        return step.layout.norm(self.attention_norm, gathered)

    def add_mlp(self, entering: Residual, layout: Rows, following: DecoderLayer | None = None) -> Residual:
        """Add the MLP to the residual, which is freed. following: the next layer."""
        x, normed, product = entering
        if normed is None:
            normed = layout.normed(self.mlp_norm, x)
        then = None if following is None else (following.attention_norm, following.attention.qkv)
        return layout.add(x, self.mlp(normed, layout, product), then)


def _tile_of(rows: ttnn.Tensor, start: ttnn.Tensor) -> ttnn.Tensor:
    """Cut a tile of rows, the third dimension, out of a tensor in DRAM. start: int32 [4], read on the device."""
    tiles = rows.shape[2] // TILE
    # The op reads no end: it cuts one of `num_devices` equal parts.
    return rows if tiles == 1 else ttnn.slice(rows, start, start, slice_dim=2, num_devices=tiles)
