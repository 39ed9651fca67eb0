# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compute the guess of all tokens of a text at once, without a T x T tensor (ALSpec paper, 5.1).

The guesses of a block of consecutive queries read the first S keys and a window of last ones, in one sdpa call.

Symbols: B texts of T tokens, H query heads, K key/value heads, g = H / K, d head size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..reference.model.step import GuessRange

BLOCK = 512  # queries of a block: a GPU has fewer calls, and a CPU does not do much more


def text_guess(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, guess_range: GuessRange, scale: float | None
) -> torch.Tensor:
    """Return the guess of every position, [B, T, H, d]: attention over the first and the last of its keys, all where
    there are fewer than 2S. query: [B, H, T, d]; key, value: [B, K, T, d]."""
    positions, out = torch.arange(query.shape[2], device=query.device), []
    for start in range(0, len(positions), BLOCK):
        end = min(len(positions), start + BLOCK)
        # The first query's tail begins first.
        tail = max(guess_range.first, guess_range.tail_start(start + 1))
        read = torch.cat((positions[: guess_range.first], positions[tail:end]))
        mask = guess_reads(guess_range, positions[start:end, None], read[None])
        out.append(grouped_attention(query[:, :, start:end], key[:, :, read], value[:, :, read], mask, scale))
    return torch.cat(out, dim=1)


def guess_reads(guess_range: GuessRange, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Return whether the guess of the query at a position reads the key at another; shapes broadcast."""
    return (key <= query) & guess_range.reads(key, query + 1)


def grouped_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    """Return attention of grouped heads, [B, q, H, d], without repeating keys. query: [B, H, q, d]; key, value:
    [B, K, m, d]; mask: bool [q, m] or [B, q, m], or None."""
    rows, heads, queries, _ = query.shape
    groups = heads // key.shape[1]
    packed = query.unflatten(1, (key.shape[1], groups)).flatten(2, 3)
    if mask is not None:
        mask = torch.cat([mask] * groups, dim=-2)
        mask = mask[:, None] if mask.ndim == 3 else mask
    out = F.scaled_dot_product_attention(packed, key, value, attn_mask=mask, scale=scale)
    return out.reshape(rows, heads, queries, -1).transpose(1, 2)
