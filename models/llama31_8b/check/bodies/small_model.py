# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A small model with random weights and a filled cache, on the chips and in the reference."""

from __future__ import annotations

from typing import Any

import torch

from models.llama31_8b.checkpoint.random_weights import random_state_dict
from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.reference.model.kv_cache import KVCache
from models.llama31_8b.reference.model.model import ReferenceLlama

from ..expectations import correlation
from ..findings import Check

PRECISION = "bfloat16"
# What bfloat16 leaves of a few layers' logits, which are about 1 each.
MIN_PCC, MAX_ERROR = 0.99, 0.15


def make(mesh, config: LlamaConfig, **settings: Any) -> tuple[Any, ReferenceLlama]:
    """Return a TtLlama for one user on `mesh` and the reference with the same weights. settings: of ModelSettings."""
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.settings import ModelSettings

    state = random_state_dict(config)
    model = TtLlama.from_state_dict(config, state, mesh, ModelSettings(precision=PRECISION, **settings))
    return model, ReferenceLlama.from_state_dict(config, state)


def filled_cache(reference: ReferenceLlama, cached: int, capacity: int) -> KVCache:
    """Return the reference's cache of one user with `cached` random tokens, in bfloat16's numbers."""
    cache, generator = reference.new_cache(1, capacity), torch.Generator().manual_seed(cached)
    for tensor in (*cache.keys, *cache.values):
        tensor.zero_()
        tensor[:, :, :cached] = torch.randn(tensor[:, :, :cached].shape, generator=generator).bfloat16().float()
    cache.reserve(cached)
    cache.commit(cached)
    return cache


def load_cache(model, cache: KVCache) -> None:
    """Write the reference's cache into every chip of a model whose TP groups have one chip."""
    import ttnn

    for ours, theirs, is_key in (
        *((*pair, True) for pair in zip(model.cache.keys, cache.keys, strict=True)),
        *((*pair, False) for pair in zip(model.cache.values, cache.values, strict=True)),
    ):
        values = torch.stack(theirs.chunk(2, -1), -1).flatten(-2) if is_key else theirs  # RoPE pairs side by side
        mapper = model.mesh_shape.mapper(model.mesh, None)
        host = ttnn.from_torch(values.bfloat16(), dtype=ours.dtype, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)
        ttnn.copy_host_to_device_tensor(host, ours)


def cached(model, count: int) -> torch.Tensor:
    """Return what the first chip caches of `count` tokens: all layers' keys and values, flat, keys in Hugging Face's
    order."""
    import ttnn

    found = []
    for tensors, is_key in ((model.cache.keys, True), (model.cache.values, False)):
        for tensor in tensors:
            values = ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])[:, :, :count].float()
            values = torch.cat((values[..., 0::2], values[..., 1::2]), -1) if is_key else values
            found.append(values.flatten())
    return torch.cat(found)


def cached_by_reference(cache: KVCache, count: int) -> torch.Tensor:
    """Return what `cached` is compared with."""
    return torch.cat([tensor[:, :, :count].flatten() for tensor in (*cache.keys, *cache.values)])


def near(name: str, measured: torch.Tensor, expected: torch.Tensor) -> Check:
    """Compare with the reference, by PCC and the largest error."""
    pcc = correlation(measured.double().flatten(), expected.double().flatten())
    error = float((measured.double() - expected.double()).abs().max())
    relative = error / float(expected.abs().max())
    shown = f"PCC {pcc:.6f}, largest error {error:.4f} ({relative:.2%})"
    wanted = f"PCC of {MIN_PCC} or more, errors of {MAX_ERROR} or less"
    return Check(name, shown, wanted, pcc >= MIN_PCC and error <= MAX_ERROR)
