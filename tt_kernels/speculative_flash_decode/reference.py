# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The torch reference of speculative flash decode: dense attention in float64, no online softmax.

Symbols: b users, h query heads, k key/value heads, s cache positions, d head_dim, S chunk_size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.tree_attention.reference import SpeculatedTrees, speculative_tree_attention_reference

TILE = 32


def guess_positions(position: int, guess_range: GuessRange, chosen: Sequence[int] = ()) -> torch.Tensor:
    """Return, as bool [position + 1], which cached tokens the guess attends to.

    The last ones begin at a multiple of 32. Without `whole_tail` they are counted from the next multiple after the
    current position, so they are last - 31 to last. All tokens if fewer than first + last are cached. chosen: tiles
    that it reads besides, of which those outside the cache count for nothing.
    """
    cached = position + 1
    seen = torch.ones(cached, dtype=torch.bool)
    if cached >= guess_range.first + guess_range.last:
        tail = -(-cached // TILE) * TILE - guess_range.last
        if guess_range.whole_tail:
            tail = (cached - guess_range.last) // TILE * TILE
        seen[guess_range.first : max(tail, guess_range.first)] = False
    for tile in chosen:
        seen[tile * TILE : (tile + 1) * TILE] = True
    return seen


def speculative_flash_decode_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cur_pos: Sequence[int], *, chunk_size: int
) -> SpeculatedTrees:
    """Compute decode attention and its guess (ALSpec paper, section 4.1): those of a tree that is its root, exact and
    guess as [1, b, h, d].

    q: [1, b, h, d]. k, v: [b, k, s, d]. cur_pos: the position of each user's query, -1 for a user to skip.
    distance_sq is ||guess - exact||^2 and norm_sq ||exact||^2 over all heads of a user.
    """
    roots, guess = [[-1]] * len(cur_pos), GuessRange.both_ends(chunk_size)
    found = speculative_tree_attention_reference(q.transpose(1, 2), k, v, cur_pos, roots, guess, 0.0)
    return found._replace(exact=found.exact.transpose(1, 2), guess=found.guess.transpose(1, 2))


def tile_masses_reference(q: torch.Tensor, k: torch.Tensor, cur_pos: Sequence[int]) -> torch.Tensor:
    """Return the softmax weights of decode attention summed over tiles of 32 keys and over the query heads of a
    key/value head: float64 [b, k, ceil(s / 32)], zeros for skipped users. Arguments as above."""
    _, users, heads, head_dim = q.shape
    kv_heads = k.shape[1]
    found = torch.zeros(users, kv_heads, -(-k.shape[2] // TILE), dtype=torch.float64)
    for user, position in enumerate(cur_pos):
        if position >= 0:
            queries = q[0, user].double().view(kv_heads, heads // kv_heads, head_dim)
            weights = (1 / math.sqrt(head_dim) * queries @ k[user, :, : position + 1].double().mT).softmax(-1).sum(1)
            for tile in range(-(-(position + 1) // TILE)):
                found[user, :, tile] = weights[:, tile * TILE : (tile + 1) * TILE].sum(-1)
    return found
