# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compute the guess of a decode step: attention over each row's first and last keys (ALSpec paper, section 3.2).

Symbols: B rows, H query heads, K key/value heads, g = H / K, q query tokens, n cached tokens, d head size, m keys that
the guess reads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F

from ..reference.model.step import GuessRange


class RowGeometry(NamedTuple):
    """Which keys the guess of each row reads, after left padding or other gaps; worked out once for all layers.

    keys: int64 [B, m], cache slots in order. visible: bool [B, q, m], which of them each query's guess reads.
    eligible: bool [B, q], queries with at least 2S cached tokens.
    """

    keys: torch.Tensor
    visible: torch.Tensor
    eligible: torch.Tensor


def keys_read(guess_range: GuessRange, queries: int) -> int:
    """Return the most keys that the guesses of `queries` consecutive queries read together."""
    tail = guess_range.last + (guess_range.alignment - 1 if guess_range.whole_tail else 0)
    return guess_range.first + tail + queries - 1


def row_geometry(mask: torch.Tensor, guess_range: GuessRange) -> RowGeometry:
    """Return the geometry of the rows under a mask, bool [B, q, n], True where a query sees a key.

    A key's position is its number among those that the row's last query sees, so padding counts nowhere.
    """
    position = mask[:, -1].cumsum(1) - 1
    cached = mask.sum(2)
    ends = mask & guess_range.reads(position[:, None], cached[:, :, None])  # [B, q, n]
    count = min(mask.shape[2], keys_read(guess_range, mask.shape[1]))
    unread = ends.any(1).logical_not().to(torch.uint8)
    keys = torch.argsort(unread, dim=1, stable=True)[:, :count]
    visible = ends.gather(2, keys[:, None].expand(-1, mask.shape[1], -1))
    return RowGeometry(keys, visible, cached >= guess_range.bypass_below)


def guess_of_rows(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, geometry: RowGeometry, scale: float | None
) -> torch.Tensor:
    """Return the guess under a mask, [B, q, H, d]. query: [B, H, q, d]; key, value: [B, K, n, d]."""
    slots = geometry.keys[:, None, :, None]
    read = [part.gather(2, slots.expand(-1, part.shape[1], -1, part.shape[3])) for part in (key, value)]
    groups = query.shape[1] // key.shape[1]
    return grouped_attention(query, read[0], read[1], geometry.visible.repeat(1, groups, 1)[:, None], scale)


def guess_of_one(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, guess_range: GuessRange, scale: float | None
) -> torch.Tensor:
    """Return the guess of rows without padding, one query each, [B, 1, H, d]. query: [B, H, 1, d]; key, value:
    [B, K, n, d] with n >= 2S."""
    first, start = guess_range.first, guess_range.tail_start(key.shape[2])
    read = [torch.cat((part[:, :, :first], part[:, :, start:]), dim=2) for part in (key, value)]
    return grouped_attention(query, read[0], read[1], None, scale)


def grouped_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float | None,
) -> torch.Tensor:
    """Return attention of grouped heads, [B, q, H, d], without repeating keys. query: [B, H, q, d]; key, value:
    [B, K, m, d]; mask: bool [B or 1, 1, g * q, m], g outer, or None."""
    rows, heads, queries, _ = query.shape
    kv_heads = key.shape[1]
    packed = query.unflatten(1, (kv_heads, heads // kv_heads)).flatten(2, 3)
    out = F.scaled_dot_product_attention(packed, key, value, attn_mask=mask, scale=scale)
    return out.reshape(rows, heads, queries, -1).transpose(1, 2)
