# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compute the guess of all tokens of a text at once, without a T x T tensor (ALSpec paper, 5.1).

The guess of a block of consecutive queries reads the first S keys and a window of last ones. Where a window lies within
its block is the same for all blocks, so they are a batch of one sdpa call with one small mask.

Symbols: B texts of T tokens, H query heads, K key/value heads, g = H / K, d head size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..reference.model.step import GuessRange

BLOCK = 128  # queries of a block, at least
BLOCKS_AT_ONCE = 64  # of a batch: bounds the copies of keys and values


def text_guess(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, guess_range: GuessRange, scale: float | None
) -> torch.Tensor:
    """Return the guess of every position, [B, T, H, d]: attention over the first and the last of its keys, all where
    there are fewer than 2S. query: [B, H, T, d]; key, value: [B, K, T, d]."""
    total, first = query.shape[2], guess_range.first
    block = -(-BLOCK // guess_range.alignment) * guess_range.alignment
    # Keys of a window: from `before` ones ahead of its block to the block's end.
    before = -(-(guess_range.last + guess_range.alignment) // block) * block
    # Up to here windows would begin before the text or overlap with the first keys.
    early = min(total, -(-(first + before) // block) * block)
    positions = torch.arange(early, device=query.device)
    out = [
        grouped_attention(
            query[:, :, :early],
            key[:, :, :early],
            value[:, :, :early],
            guess_reads(guess_range, positions[:, None], positions[None]),
            scale,
        )
    ]
    slots = torch.arange(first + before + block, device=query.device) - first - before
    mask = guess_reads(guess_range, early + torch.arange(block, device=query.device)[:, None], early + slots[None])
    mask = mask | (slots < -before)
    for start in range(early, total, BLOCKS_AT_ONCE * block):
        out.append(_windows(query, key, value, start, (first, before, block), mask, scale))
    return torch.cat(out, dim=1)


def guess_reads(guess_range: GuessRange, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Return whether the guess of the query at a position reads the key at another; shapes broadcast."""
    return (key <= query) & guess_range.reads(key, query + 1)


def _windows(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    start: int,
    sizes: tuple[int, int, int],
    mask: torch.Tensor,
    scale: float | None,
) -> torch.Tensor:
    """Return the guess of up to BLOCKS_AT_ONCE blocks from position `start` on, [B, positions, H, d].

    sizes: first keys, window before a block, block. mask: bool [block, sum of sizes].
    """
    first, before, block = sizes
    texts, heads, total, size = query.shape
    end = min(total, start + BLOCKS_AT_ONCE * block)
    count = -(-(end - start) // block)
    missing = count * block - (end - start)
    read = []
    for part in (key, value):
        near = F.pad(part[:, :, start - before : end], (0, 0, 0, missing)).unfold(2, before + block, block)
        near = near.permute(0, 2, 1, 4, 3)  # [B, count, K, before + block, d]
        sink = part[:, None, :, :first].expand(-1, count, -1, -1, -1)
        read.append(torch.cat((sink, near), dim=3).flatten(0, 1))
    queries = F.pad(query[:, :, start:end], (0, 0, 0, missing)).unflatten(2, (count, block))
    attended = grouped_attention(queries.transpose(1, 2).flatten(0, 1), read[0], read[1], mask, scale)
    return attended.reshape(texts, count * block, heads, -1)[:, : end - start]


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
