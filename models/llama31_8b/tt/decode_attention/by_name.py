# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode attention by a policy's name: exact, sink, static or alspec, as in the reference."""

from __future__ import annotations

import ttnn

from ...config import LlamaConfig
from ..parallel.mesh import MeshShape
from .alspec import AttentionSpeculation
from .base import DecodeAttention
from .exact import exact_attention
from .settings import AttentionSettings
from .sink_static import GuessAttention


def make_decode_attention(
    settings: AttentionSettings,
    mesh: ttnn.MeshDevice,
    mesh_shape: MeshShape,
    config: LlamaConfig,
    *,
    users: int,
    capacity: int,
    kv_cache: str,
    decode_sharding: str,
    block: int | None = None,
) -> DecodeAttention:
    """Make the attention of a TtLlama with these users and capacity. block: of a paged cache, None without pages. Exact
    attention, also on static's other layers, is chosen by `exact_attention`. Raises what AttentionSpeculation and
    GuessAttention raise."""
    if settings.policy == "alspec":
        return AttentionSpeculation(
            mesh,
            mesh_shape,
            config,
            users=users,
            capacity=capacity,
            chunk_size=settings.chunk_size,
            threshold=settings.threshold,
            guess_range=settings.guess_range,
        )
    exact = exact_attention(
        mesh,
        mesh_shape,
        config,
        users=users,
        capacity=capacity,
        kv_cache=kv_cache,
        decode_sharding=decode_sharding,
        block=block,
    )
    if settings.policy == "exact":
        return exact
    return GuessAttention(
        config, settings.chunk_size, exact, None if settings.policy == "sink" else settings.static_layers
    )
