# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A decoder layer on a chip: attention and MLP, each after a norm and added to the residual."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import ttnn

from ..config import LlamaConfig
from .attention_policies import DecodeAttention, TokenHeads
from .kv_cache import KVCacheBase
from .layouts import Heads, TpCollectives, gather, reduce
from .mesh import MeshShape
from .modules import MLP, Angles, Projection, RMSNorm, Rope, kernel_config

Q_CHUNK = 128


class Attention:
    """A layer's attention up to the output projection's partial sums, which the decoder adds over the TP group.

    qkv: [1, 1, hidden, (heads + 2 kv heads) * head_dim / tp]; wo: [1, 1, heads * head_dim / tp, hidden], see
    WeightMap. decode_heads: splits and joins the heads of a decode step.
    """

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        mesh_shape: MeshShape,
        config: LlamaConfig,
        layer: int,
        qkv: Projection,
        wo: Projection,
        rope: Rope,
        decode_attention: DecodeAttention,
        decode_heads: Heads,
    ) -> None:
        self.mesh, self.layer, self.qkv, self.wo, self.rope = mesh, layer, qkv, wo, rope
        self.decode_attention, self.decode_heads = decode_attention, decode_heads
        self.heads = config.num_attention_heads // mesh_shape.tp
        self.kv_heads = config.num_key_value_heads // mesh_shape.tp
        self.head_dim = config.head_dim

    def decode(self, x: ttnn.Tensor, cache: KVCacheBase, positions: ttnn.Tensor, angles: Angles) -> ttnn.Tensor:
        """x: bfloat16 [1, 1, users, hidden] -> partial sums of the same shape, in L1. Writes the cache.

        positions: int32 [users], ROW_MAJOR, each user's new position; -1 skips a user.
        """
        return self.project_output(self.attend(self.project_qkv(x, angles), cache, positions))

    def project_qkv(self, x: ttnn.Tensor, angles: Angles) -> TokenHeads:
        """Project x, bfloat16 [1, 1, users, hidden], to queries, keys and values, rotated."""
        fused = self.qkv.decode(x)
        q, k, v = self.decode_heads.split(fused)
        ttnn.deallocate(fused)
        q, k = self.decode_heads.rotate(self.rope, q, k, angles)
        return TokenHeads(self.decode_heads.queries(q, self.decode_attention.takes_shards), k, v)

    def attend(self, heads: TokenHeads, cache: KVCacheBase, positions: ttnn.Tensor) -> ttnn.Tensor:
        """Write the cache and attend to it: bfloat16 [1, users, heads / tp, head_dim], interleaved."""
        self.decode_heads.store(cache, self.layer, heads.keys, heads.values, positions)
        return self.decode_attention(
            self.layer, heads.queries, cache.keys[self.layer], cache.values[self.layer], positions, cache.table
        )

    def project_output(self, out: ttnn.Tensor) -> ttnn.Tensor:
        """Project `attend`'s result to partial sums, bfloat16 [1, 1, users, hidden], in L1."""
        return self.wo.decode(self.decode_heads.join(out))

    def prefill(self, x: ttnn.Tensor, cache: KVCacheBase, user: int, start: int, begin: ttnn.Tensor, angles: Angles):
        """x: bfloat16 [1, 1, tokens, hidden], one user's tokens from position `start`, after what is cached. begin:
        int32 [1] on the device, equal to start. Returns partial sums of x's shape, in DRAM."""
        tokens = x.shape[2]
        q, k, v = self._rotated_heads(x, angles)
        cache.fill(self.layer, k, v, user, start)
        # The scale is the op's default, 1 / sqrt(head_dim): its binding refuses numbers that are not exact in float32.
        group = (*cache.query_groups(self.heads), tokens, self.head_dim)
        out = ttnn.transformer.chunked_scaled_dot_product_attention(
            ttnn.reshape(q, group),
            *cache.blocks(self.layer),
            cache.page_table(user),
            chunk_start_idx_tensor=begin,
            program_config=self._prefill_program(tokens, start, cache.block),
            compute_kernel_config=kernel_config("bfloat8_b"),
        )
        out = ttnn.experimental.nlp_concat_heads(ttnn.reshape(out, (1, self.heads, tokens, self.head_dim)))
        return self.wo.rows(out, ttnn.DRAM_MEMORY_CONFIG)

    def project_tree(self, x: ttnn.Tensor, angles: Angles) -> TokenHeads:
        """Project x, bfloat16 [1, 1, users * nodes, hidden], one row per node, to queries, keys and values, rotated.
        angles: `Rope.prefill_angles`, one row per node."""
        return TokenHeads(*self._rotated_heads(x, angles))

    def attend_tree(
        self, heads: TokenHeads, cache: KVCacheBase, prefix: ttnn.Tensor, intervals: ttnn.Tensor
    ) -> ttnn.Tensor:
        """Write the nodes' keys and values after the prefixes and attend: bfloat16 [1, heads / tp, users * nodes,
        head_dim], in DRAM. prefix: int32 [users], intervals: int32 [users, 2, nodes], see `tree_attention`."""
        cache.write_nodes(self.layer, heads.keys, heads.values, prefix, intervals.shape[2])
        caches = cache.keys[self.layer], cache.values[self.layer]
        return self.decode_attention.attend_tree(self.layer, heads.queries, *caches, prefix, intervals, cache.table)

    def project_tree_output(self, out: ttnn.Tensor) -> ttnn.Tensor:
        """Project `attend_tree`'s result to partial sums, bfloat16 [1, 1, users * nodes, hidden], in DRAM."""
        return self.wo.rows(ttnn.experimental.nlp_concat_heads(out), ttnn.DRAM_MEMORY_CONFIG)

    def keys_and_values(self, x: ttnn.Tensor, angles: Angles) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """Compute what `prefill` and `attend_tree` cache: bfloat16 [1, kv heads, rows, head_dim] each, in DRAM."""
        _, k, v = self._heads(x)
        return self.rope.prefill(k, angles), v

    def _rotated_heads(self, x: ttnn.Tensor, angles: Angles) -> tuple[ttnn.Tensor, ttnn.Tensor, ttnn.Tensor]:
        """Return queries, keys and values of each row of x: [1, heads or kv heads, rows, head_dim], in DRAM."""
        q, k, v = self._heads(x)
        return self.rope.prefill(q, angles), self.rope.prefill(k, angles), v

    def _heads(self, x: ttnn.Tensor) -> tuple[ttnn.Tensor, ttnn.Tensor, ttnn.Tensor]:
        fused = self.qkv.rows(x, ttnn.DRAM_MEMORY_CONFIG)
        q, k, v = ttnn.experimental.nlp_create_qkv_heads(
            fused, num_heads=self.heads, num_kv_heads=self.kv_heads, transpose_k_heads=False
        )
        ttnn.deallocate(fused)
        return q, k, v

    def _prefill_program(self, tokens: int, start: int, block: int):
        """Choose chunks of up to 128 queries and keys that divide the tokens, the page and the start."""
        size = Q_CHUNK
        while tokens % size or block % size or start % size:
            size //= 2
        grid = self.mesh.compute_with_storage_grid_size()
        return ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=(grid.x, grid.y),
            q_chunk_size=size,
            k_chunk_size=size,
            exp_approx_mode=False,
        )


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
