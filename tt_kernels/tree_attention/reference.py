# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The torch reference of tree attention: each node attends in float64 to the tokens on its path, found by walking
parents.

It knows neither intervals nor masks. Symbols: b users, n nodes, h query heads, k key/value heads, s cache positions, d
head_dim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch


def path_of(parents: Sequence[int], node: int) -> list[int]:
    """Return the nodes from the root to `node`, both included. parents: -1 for a root."""
    nodes = []
    while node >= 0:
        nodes.append(node)
        node = parents[node]
    return nodes[::-1]


def tree_attention_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    prefix: Sequence[int],
    parents: Sequence[Sequence[int]],
    *,
    scale: float | None = None,
) -> torch.Tensor:
    """Return float64 [1, h, b * n, d], zeros for skipped users.

    q: [1, h, b * n, d], row u * n + i is node i of user u. k, v: [b, k, s, d]; those of node i of user u at position
        prefix[u] + i. prefix: cached tokens before the tree, -1 for a user to skip. parents: n per user, -1 for a root.
        scale: default 1 / sqrt(d).
    """
    _, heads, _, head_dim = q.shape
    users, kv_heads = k.shape[:2]
    nodes = len(parents[0])
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    found = torch.zeros(q.shape, dtype=torch.float64)
    for user in range(users):
        if prefix[user] < 0:
            continue
        for node in range(nodes):
            seen = [*range(prefix[user]), *(prefix[user] + n for n in path_of(parents[user], node))]
            keys, values = k[user, :, seen].double(), v[user, :, seen].double()
            row = user * nodes + node
            queries = q[0, :, row].double().view(kv_heads, heads // kv_heads, head_dim)
            weights = (scale * queries @ keys.mT).softmax(-1)
            found[0, :, row] = (weights @ values).view(heads, head_dim)
    return found
