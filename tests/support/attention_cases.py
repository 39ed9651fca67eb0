# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Small models and trees that the tests of the reference share, and a dense attention written from the
definitions."""

import math
from collections.abc import Sequence

import torch

from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.reference.model.kv_cache import KVCache
from models.llama31_8b.reference.model.model import ReferenceLlama


def tiny_config(**changes) -> LlamaConfig:
    """Three layers, two query heads a key/value head, 256 tokens of context."""
    fields = dict(
        vocab_size=89,
        hidden_size=32,
        intermediate_size=56,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        name="tiny",
    )
    return LlamaConfig(**{**fields, **changes})


def random_tokens(count: int, seed: int = 0, vocab: int = 89) -> list[int]:
    return torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def filled(model: ReferenceLlama, lengths: Sequence[int], capacity: int) -> KVCache:
    """A cache with a random text of each length."""
    cache = model.new_cache(len(lengths), capacity)
    model.prefill([random_tokens(n, seed=n) for n in lengths], cache)
    return cache


def path_to(parents: list[int], node: int) -> list[int]:
    """Nodes from the root to `node`."""
    path = []
    while node != -1:
        path.append(node)
        node = parents[node]
    return path[::-1]


def guess_positions(cached: int, chunk_size: int, alignment: int) -> list[int]:
    """Positions the guess reads: the first S, and the last S with those before them from a multiple of the alignment
    on."""
    begin = math.floor((cached - chunk_size) / alignment) * alignment
    return [p for p in range(cached) if p < chunk_size or p >= begin]


def dense_attention_of(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, slots: list[int]) -> torch.Tensor:
    """Softmax attention in float64 of one query [h, d] (scaled) over some slots of keys/values [kv, n, d]: [h
    * d]."""
    heads, share = query.shape[0], query.shape[0] // keys.shape[0]
    outs = []
    for head in range(heads):
        k, v = keys[head // share, slots].double(), values[head // share, slots].double()
        weights = torch.exp(k @ query[head].double() - (k @ query[head].double()).max())
        outs.append((weights / weights.sum()) @ v)
    return torch.cat(outs)
