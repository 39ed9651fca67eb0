# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the two ops leave in the cache, in torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def write_nodes_reference(cache: torch.Tensor, new: torch.Tensor, prefix: Sequence[int]) -> torch.Tensor:
    """Return a new cache with the nodes written. cache: [users, kv_heads, capacity, head_dim]; new: [1, kv_heads, users
    * nodes, head_dim], user by user; prefix: cached tokens of each user, -1 to leave it out."""
    result = cache.clone()
    users, heads, _, head_dim = cache.shape
    nodes = new.shape[2] // users
    rows = new.reshape(heads, users, nodes, head_dim)
    for user, start in enumerate(prefix):
        if start >= 0:
            result[user, :, start : start + nodes] = rows[:, user]
    return result


def commit_path_reference(cache: torch.Tensor, prefix: Sequence[int], paths: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return a new cache with the paths committed; rows after the committed ones are as they were. paths: each user's
    accepted nodes after the root, in order."""
    result = cache.clone()
    for user, (start, path) in enumerate(zip(prefix, paths, strict=True)):
        if start < 0:
            continue
        for step, node in enumerate(path):
            result[user, :, start + 1 + step] = cache[user, :, start + node]
    return result
