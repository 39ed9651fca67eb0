# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Caches and embeddings that are random walks, so that attention stays near where it was a step before: what a bench
decodes where the layers are to decide by themselves."""

from __future__ import annotations

import math

import torch

# The part of the cache, and the tokens of the vocabulary, after which a row has little to do with another. Keys are
# longer than independent ones, so that a query prefers some.
CACHE_STRIDE, VOCABULARY_STRIDE, KEY_LENGTH = 0.25, 16, 3.0


def random_walk(shape: tuple[int, ...], stride: float, generator: torch.Generator) -> torch.Tensor:
    """Normal numbers, float32 of `shape`, whose rows, along the last dimension but one, are steps of a stationary walk:
    the correlation of two falls by a factor of e in `stride` rows."""
    kept = math.exp(-1 / stride)
    rows = torch.randn(shape, generator=generator)
    for row in range(1, shape[-2]):
        rows[..., row, :] = kept * rows[..., row - 1, :] + math.sqrt(1 - kept**2) * rows[..., row, :]
    return rows


def walked_embeddings(vocab: int, hidden: int, seed: int) -> torch.Tensor:
    """Return an embedding table, float32 [vocab, hidden], as long as that of `random_state_dict`."""
    generator = torch.Generator().manual_seed(seed)
    return random_walk((vocab, hidden), VOCABULARY_STRIDE, generator) / hidden**0.5


def walked_caches(layers: int, shape: tuple[int, ...], seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return keys and values of each layer, float32 of `shape`, [users, kv_heads, tokens, head_dim], as a chip's cache
    holds them: the numbers of a key that RoPE turns together are side by side."""
    generator, stride = torch.Generator().manual_seed(seed), CACHE_STRIDE * shape[-2]
    keys = [KEY_LENGTH * random_walk(shape, stride, generator) for _ in range(layers)]
    return keys, [random_walk(shape, stride, generator) for _ in range(layers)]
