# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The decode attention that goes by a policy's name: exact, sink, static or alspec, as in the reference."""

from __future__ import annotations

from collections.abc import Iterable

import ttnn

from ...config import LlamaConfig
from ..parallel.mesh import MeshShape
from .alspec import AttentionSpeculation
from .base import DecodeAttention
from .exact import exact_attention
from .sink_static import GuessAttention

POLICIES = ("exact", "sink", "static", "alspec")


def decode_attention(
    name: str,
    mesh: ttnn.MeshDevice,
    plan: MeshShape,
    config: LlamaConfig,
    *,
    users: int,
    capacity: int,
    kv_cache: str,
    layout: str,
    chunk_size: int = 128,
    threshold: float = 0.10,
    static_layers: Iterable[int] = (),
) -> DecodeAttention:
    """For TtLlama(attend=..., layout=layout) with as many users and positions, whose exact attention, of the exact
    policy and static's other layers, is that of `exact_attention`. The others as of the classes.

    Raises ValueError for another name, and what AttentionSpeculation and GuessAttention raise.
    """
    if name not in POLICIES:
        raise ValueError(f"no attention policy {name!r}; policies: {', '.join(POLICIES)}")
    if name == "alspec":
        return AttentionSpeculation(
            mesh, plan, config, users=users, capacity=capacity, chunk_size=chunk_size, threshold=threshold
        )
    exact = exact_attention(mesh, plan, config, users=users, capacity=capacity, kv_cache=kv_cache, layout=layout)
    if name == "exact":
        return exact
    return GuessAttention(config, chunk_size, exact, None if name == "sink" else static_layers)
