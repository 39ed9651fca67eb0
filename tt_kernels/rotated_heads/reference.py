# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The reference of the split into rotated heads, in torch."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Heads(NamedTuple):
    """As tt_kernels.rotated_heads.op has them."""

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


def rotated_heads_reference(
    fused: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, heads: int, kv_heads: int
) -> Heads:
    """Return queries [1, users, heads, head_dim], keys and values [1, users, kv_heads, head_dim] in float64. fused:
    [1, 1, users, (heads + 2 kv_heads) * head_dim]; cos, sin: [1, 1, users, head_dim]."""
    users, head_dim = cos.shape[2:]
    q, k, v = fused.double().view(1, users, -1, head_dim).split([heads, kv_heads, kv_heads], dim=2)
    cos, sin = (angles.double().view(1, users, 1, head_dim) for angles in (cos, sin))

    def rotated(x: torch.Tensor) -> torch.Tensor:
        even, odd = x[..., 0::2], x[..., 1::2]
        return x * cos + torch.stack([-odd, even], dim=-1).flatten(3) * sin

    return Heads(rotated(q), rotated(k), v)
