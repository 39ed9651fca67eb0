# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The small ops of a decode step, stock ttnn, at Llama 3.1 8B's shapes on one of `tp` chips.

They are launched as the ALSpec paper's tables 4 to 6 name them: the residual over 32 cores, heads created from an
interleaved product, queries and keys rotated on a core, one cache written at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import ttnn

from models.llama31_8b.config import LlamaConfig, preset
from models.llama31_8b.tt.layouts import in_l1
from models.llama31_8b.tt.mesh import TILE
from models.llama31_8b.tt.modules import pair_rotation, user_shards
from models.llama31_8b.tt.sharding import Shards
from perf.sweep.configurations import Configuration
from perf.sweep.launch import Launch

RESIDUAL_CORES = 32


def decode_op(mesh, c: Configuration) -> Launch:
    """Return the launch of c["op"], c["tp"] chips sharing the model and c["context"] positions cached."""
    config, tp = preset("llama-3.1-8b"), c["tp"]
    if c["op"] == "update_cache":
        return _update_cache(mesh, config.num_key_value_heads // tp, config.head_dim, c["context"])
    maker: Callable[[Any, LlamaConfig, int], Launch] = {
        "norm": _norm,
        "unshard": _unshard,
        "create_heads": _create_heads,
        "rotate": _rotate,
        "shard": _shard,
        "concat_heads": _concat_heads,
        "add": _add,
        "gated_product": _gated_product,
    }[c["op"]]
    return maker(mesh, config, tp)


def _put(mesh, *shape: int, memory=ttnn.L1_MEMORY_CONFIG, dtype=ttnn.bfloat16, values: torch.Tensor | None = None):
    return ttnn.from_torch(
        torch.randn(shape) if values is None else values,
        dtype=dtype,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        memory_config=memory,
    )


def _over_residual_cores(mesh, columns: int):
    return in_l1(mesh, Shards(RESIDUAL_CORES, columns // RESIDUAL_CORES))


def _norm(mesh, config: LlamaConfig, tp: int) -> Launch:
    hidden = config.hidden_size
    memory = _over_residual_cores(mesh, hidden)
    tiles, grid = hidden // RESIDUAL_CORES // TILE, memory.shard_spec.grid.bounding_box().grid_size()
    program = ttnn.LayerNormShardedMultiCoreProgramConfig(
        compute_with_storage_grid_size=(grid.x, grid.y),
        subblock_w=max(n for n in range(1, 5) if tiles % n == 0),
        block_h=1,
        block_w=tiles,
        inplace=False,
    )
    x, weight = _put(mesh, 1, 1, TILE, hidden, memory=memory), _put(mesh, 1, 1, 1, hidden)
    run = partial(ttnn.rms_norm, x, weight=weight, epsilon=1e-5, memory_config=memory, program_config=program)
    return Launch(run)


def _fused_columns(config: LlamaConfig, tp: int) -> int:
    return (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim // tp


def _unshard(mesh, config: LlamaConfig, tp: int) -> Launch:
    columns = _fused_columns(config, tp)
    cores = max(n for n in range(1, RESIDUAL_CORES + 1) if columns // TILE % n == 0)
    x = _put(mesh, 1, 1, TILE, columns, memory=in_l1(mesh, Shards(cores, columns // cores)))
    return Launch(partial(ttnn.sharded_to_interleaved, x, ttnn.L1_MEMORY_CONFIG))


def _create_heads(mesh, config: LlamaConfig, tp: int) -> Launch:
    fused = _put(mesh, 1, 1, TILE, _fused_columns(config, tp))
    fused = ttnn.reshape(fused, (1, 1, 1, fused.shape[3]), (1, 1, TILE, fused.shape[3]))
    return Launch(
        partial(
            ttnn.experimental.nlp_create_qkv_heads_decode,
            fused,
            num_heads=config.num_attention_heads // tp,
            num_kv_heads=config.num_key_value_heads // tp,
            memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
        )
    )


def _heads(mesh, heads: int, head_dim: int, memory=None):
    memory = memory or user_shards(mesh, 1, TILE, head_dim)
    return _put(mesh, 1, 1, heads, head_dim, memory=memory)


def _rotate(mesh, config: LlamaConfig, tp: int) -> Launch:
    dim = config.head_dim
    x = _heads(mesh, config.num_attention_heads // tp, dim)
    angles = [_put(mesh, 1, 1, 1, dim, memory=user_shards(mesh, 1, TILE, dim)) for _ in range(2)]
    rotation = _put(mesh, memory=user_shards(mesh, 1, TILE, TILE), values=pair_rotation())
    return Launch(partial(ttnn.experimental.rotary_embedding_llama, x, *angles, rotation, is_decode_mode=True))


def _update_cache(mesh, kv_heads: int, head_dim: int, context: int) -> Launch:
    cache = ttnn.zeros(
        (1, kv_heads, -(-context // TILE) * TILE, head_dim),
        dtype=ttnn.bfloat8_b,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        memory_config=ttnn.DRAM_MEMORY_CONFIG,
    )
    new = _heads(mesh, kv_heads, head_dim)
    at = ttnn.from_torch(torch.tensor([context - 1], dtype=torch.int32), dtype=ttnn.int32, device=mesh)
    return Launch(partial(ttnn.experimental.paged_update_cache, cache, new, update_idxs_tensor=at))


def _shard(mesh, config: LlamaConfig, tp: int) -> Launch:
    x = _heads(mesh, config.num_attention_heads // tp, config.head_dim, ttnn.L1_MEMORY_CONFIG)
    return Launch(partial(ttnn.interleaved_to_sharded, x, user_shards(mesh, 1, TILE, config.head_dim)))


def _concat_heads(mesh, config: LlamaConfig, tp: int) -> Launch:
    heads = config.num_attention_heads // tp
    return Launch(
        partial(ttnn.experimental.nlp_concat_heads_decode, _heads(mesh, heads, config.head_dim), num_heads=heads)
    )


def _add(mesh, config: LlamaConfig, tp: int) -> Launch:
    columns = config.hidden_size // tp
    memory = _over_residual_cores(mesh, columns)
    x, y = (_put(mesh, 1, 1, TILE, columns, memory=memory) for _ in range(2))
    return Launch(partial(ttnn.add, x, y, memory_config=memory))


def _gated_product(mesh, config: LlamaConfig, tp: int) -> Launch:
    columns = config.intermediate_size // tp
    cores = max(n for n in range(1, RESIDUAL_CORES + 1) if columns // TILE % n == 0)
    memory = in_l1(mesh, Shards(cores, columns // cores))
    gate, up = (_put(mesh, 1, 1, TILE, columns, memory=memory) for _ in range(2))
    silu = [ttnn.UnaryOpType.SILU]
    return Launch(
        partial(ttnn.mul, gate, up, input_tensor_a_activations=silu, dtype=ttnn.bfloat8_b, memory_config=memory)
    )
