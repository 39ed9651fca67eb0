# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Caches, heads, rotary embedding and attention: the cases of op_coverage_cases that belong to attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from runtime_patches.simulated_n150.tests.op_coverage.op_coverage_cases import case, get, normal, put


def _height_sharded(rows: int, columns: int, shards: int = 1):
    """A memory configuration of [rows, columns] shards, one a core, along the first row of cores."""
    import ttnn

    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(shards - 1, 0))])
    spec = ttnn.ShardSpec(cores, [rows, columns], ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, spec)


def _rotate_interleaved(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding on neighbouring pairs, as rotary_embedding_llama's transformation matrix has it."""
    x = x.float()
    turned = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    return x * cos.float() + turned * sin.float()


def _angles(positions: torch.Tensor, dimension: int) -> tuple[torch.Tensor, torch.Tensor]:
    frequencies = 10000.0 ** (-torch.arange(0, dimension, 2) / dimension)
    angles = (positions[:, None].float() * frequencies).repeat_interleave(2, -1)
    return angles.cos().bfloat16(), angles.sin().bfloat16()


def _transformation() -> torch.Tensor:
    matrix = torch.zeros(1, 1, 32, 32)
    even = torch.arange(0, 32, 2)
    matrix[..., even, even + 1] = 1
    matrix[..., even + 1, even] = -1
    return matrix.bfloat16()


# -- caches -------------------------------------------------------------------------------------------------


@case("fill_cache", exact=True)
def fill_cache(device):
    import ttnn

    cache, new = normal(2, 1, 64, 32), normal(1, 1, 32, 32, seed=1)
    on_device = put(device, cache)
    ttnn.fill_cache(on_device, put(device, new), 1)
    expected = cache.clone()
    expected[1, :, :32] = new[0]
    return get(on_device), expected


@case("update_cache", exact=True)
def update_cache(device):
    import ttnn

    cache, new = normal(32, 1, 64, 32), normal(1, 1, 32, 32, seed=1)
    on_device = put(device, cache)
    ttnn.update_cache(on_device, put(device, new), 37)
    expected = cache.clone()
    expected[:, 0, 37] = new[0, 0]
    return get(on_device), expected


@case("paged_update_cache", exact=True, note="pages of 32 positions through a page table")
def paged_update_cache(device):
    import ttnn

    pages, new = normal(4, 1, 32, 32), normal(1, 1, 1, 32, seed=1)
    table = torch.tensor([[2, 0, 3, 1]], dtype=torch.int32)
    on_device = put(device, pages)
    padded = F.pad(new, (0, 0, 0, 31))
    update = put(device, padded, memory_config=_height_sharded(32, 32))
    ttnn.experimental.paged_update_cache(
        on_device,
        update,
        update_idxs_tensor=put(device, torch.tensor([37], dtype=torch.int32), "int32", "ROW_MAJOR_LAYOUT"),
        page_table=put(device, table, "int32", "ROW_MAJOR_LAYOUT"),
    )
    expected = pages.clone()
    expected[0, 0, 37 - 32] = new[0, 0, 0]
    return get(on_device), expected


# -- heads --------------------------------------------------------------------------------------------------


@case("nlp_create_qkv_heads_decode", exact=True)
def create_heads(device):
    import ttnn

    heads, kv_heads, dimension = 4, 2, 32
    fused = normal(1, 1, 1, (heads + 2 * kv_heads) * dimension)
    q, k, v = ttnn.experimental.nlp_create_qkv_heads_decode(
        put(device, fused),
        num_heads=heads,
        num_kv_heads=kv_heads,
        memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
    )
    parts = fused.reshape(heads + 2 * kv_heads, dimension).split([heads, kv_heads, kv_heads])
    return [
        (get(tensor).reshape(-1, dimension)[: len(part)], part) for tensor, part in zip((q, k, v), parts, strict=True)
    ]


@case("nlp_concat_heads_decode", exact=True, grid="4x1", note="needs a core a head")
def concat_heads(device):
    import ttnn

    heads = normal(1, 1, 4, 32)
    sharded = put(device, F.pad(heads, (0, 0, 0, 28)), memory_config=_height_sharded(32, 32))
    out = ttnn.experimental.nlp_concat_heads_decode(sharded, num_heads=4)
    return get(out).reshape(-1, 128)[:1], heads.reshape(1, 128)


# -- rotary embedding ---------------------------------------------------------------------------------------


@case("rotary_embedding_llama_prefill")
def rotary_prefill(device):
    import ttnn

    x = normal(1, 2, 32, 64)
    cos, sin = _angles(torch.arange(32), 64)
    out = ttnn.experimental.rotary_embedding_llama(
        put(device, x),
        put(device, cos[None, None]),
        put(device, sin[None, None]),
        put(device, _transformation()),
    )
    return get(out), _rotate_interleaved(x, cos, sin)


@case("rotary_embedding_llama_decode")
def rotary_decode(device):
    import ttnn

    x = normal(1, 1, 32, 64)
    cos, sin = _angles(torch.tensor([17]), 64)
    wide = _height_sharded(32, 64)

    def rows(tensor):
        return put(device, tensor[None, None].expand(1, 1, 32, 64).contiguous(), memory_config=wide)

    out = ttnn.experimental.rotary_embedding_llama(
        put(device, x, memory_config=wide),
        rows(cos),
        rows(sin),
        put(device, _transformation(), memory_config=_height_sharded(32, 32)),
        is_decode_mode=True,
    )
    return get(out), _rotate_interleaved(x, cos, sin)


# -- attention ----------------------------------------------------------------------------------------------


def _program(q_chunk: int, k_chunk: int):
    import ttnn

    return ttnn.SDPAProgramConfig(
        compute_with_storage_grid_size=(1, 1),
        q_chunk_size=q_chunk,
        k_chunk_size=k_chunk,
        exp_approx_mode=False,
    )


@case("scaled_dot_product_attention_causal", note="prefill, two query heads to one of the cache")
def sdpa_prefill(device):
    import ttnn

    q, k, v = normal(1, 2, 64, 32), normal(1, 1, 64, 32, seed=1), normal(1, 1, 64, 32, seed=2)
    out = ttnn.transformer.scaled_dot_product_attention(
        put(device, q), put(device, k), put(device, v), is_causal=True, program_config=_program(32, 32)
    )
    expected = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True, enable_gqa=True)
    return get(out), expected


def _decode(device, position, chunk, cache_dtype="bfloat16", **tensors):
    import ttnn

    heads, kv_heads, length, dimension = 4, 2, 64, 32
    q, k, v = (
        normal(1, 1, heads, dimension),
        normal(1, kv_heads, length, dimension, seed=1),
        normal(1, kv_heads, length, dimension, seed=2),
    )
    keys, values = put(device, k, cache_dtype), put(device, v, cache_dtype)
    out = ttnn.transformer.scaled_dot_product_attention_decode(
        put(device, q), keys, values, scale=dimension**-0.5, program_config=_program(0, chunk), **tensors
    )
    k, v = get(keys).float(), get(values).float()
    visible = slice(0, position + 1)
    expected = F.scaled_dot_product_attention(
        q.float().transpose(1, 2), k[:, :, visible], v[:, :, visible], enable_gqa=True
    )
    return get(out)[:, :, :heads], expected.transpose(1, 2)


@case("scaled_dot_product_attention_decode", note="causal, four query heads to two, position given as a list")
def sdpa_decode(device):
    return _decode(device, 40, 32, cur_pos=[40])


@case("scaled_dot_product_attention_decode_position_tensor", note="position in a tensor, bfloat8_b cache")
def sdpa_decode_tensor(device):
    positions = put(device, torch.tensor([17], dtype=torch.int32), "int32", "ROW_MAJOR_LAYOUT")
    return _decode(device, 17, 32, "bfloat8_b", cur_pos_tensor=positions)
