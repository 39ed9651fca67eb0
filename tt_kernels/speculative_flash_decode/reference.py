# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The torch oracle of speculative flash decode: dense attention in float64, no online softmax.

Symbols: b users, h query heads, k key/value heads, s cache positions, d head_dim, S chunk_size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from tt_kernels.common.priority import ACCEPTED, BYPASSED, RECEIVED, REJECTED

TILE = 32


class Decoded(NamedTuple):
    """exact, guess: float64 [1, b, h, d], zeros for skipped users. distance_sq, norm_sq: float64 [b]."""

    exact: torch.Tensor
    guess: torch.Tensor
    distance_sq: torch.Tensor
    norm_sq: torch.Tensor


class Ends(NamedTuple):
    """Tokens of the guess at either end. whole_tail: at least `last` cached ones, from a tile boundary on."""

    first: int
    last: int
    whole_tail: bool = False


def guess_positions(
    position: int, chunk_size: int, tail_alignment: int = TILE, ends: Ends | None = None
) -> torch.Tensor:
    """bool [position + 1]: the cached tokens the guess attends to: the first `chunk_size` and the last chunk_size to
    chunk_size + 31, or `ends`.

    The last ones begin at a multiple of `tail_alignment`; 1 gives the paper's definition. Without `whole_tail` they are
    counted from the next multiple behind the current position, so are last - 31 to last. All tokens where fewer than
    first + last are cached.
    """
    ends = ends or Ends(chunk_size, chunk_size, True)
    cached = position + 1
    seen = torch.ones(cached, dtype=torch.bool)
    if cached >= ends.first + ends.last:
        tail = -(-cached // tail_alignment) * tail_alignment - ends.last
        if ends.whole_tail:
            tail = (cached - ends.last) // tail_alignment * tail_alignment
        seen[ends.first : max(tail, ends.first)] = False
    return seen


def speculative_flash_decode_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cur_pos: Sequence[int],
    *,
    chunk_size: int,
    scale: float | None = None,
    tail_alignment: int = TILE,
    ends: Ends | None = None,
) -> Decoded:
    """Decode attention and its guess (ALSpec paper, section 4.1).

    q: [1, b, h, d]. k, v: [b, k, s, d]. cur_pos: the position of each user's query, -1 for one to skip.
    scale: default 1 / sqrt(d). distance_sq is |guess - exact|^2 and norm_sq |exact|^2 over all heads of a
    user.
    """
    _, users, heads, head_dim = q.shape
    kv_heads = k.shape[1]
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    exact = torch.zeros(1, users, heads, head_dim, dtype=torch.float64)
    guess = torch.zeros_like(exact)
    for user, position in enumerate(cur_pos):
        if position < 0:
            continue
        cached = position + 1
        queries = q[0, user].double().view(kv_heads, heads // kv_heads, head_dim)
        keys, values = k[user, :, :cached].double(), v[user, :, :cached].double()
        scores = scale * queries @ keys.mT
        hidden = ~guess_positions(position, chunk_size, tail_alignment, ends)
        exact[0, user] = (scores.softmax(-1) @ values).view(heads, head_dim)
        guess[0, user] = (scores.masked_fill(hidden, -math.inf).softmax(-1) @ values).view(heads, head_dim)
    distance_sq = (guess - exact).square().sum((0, 2, 3))
    return Decoded(exact, guess, distance_sq, exact.square().sum((0, 2, 3)))


def outcomes(
    distance_sq: torch.Tensor,
    norm_sq: torch.Tensor,
    cur_pos: Sequence[int],
    *,
    chunk_size: int,
    threshold: float,
    ends: Ends | None = None,
) -> list[int]:
    """The sender's priority of each user after verification: ACCEPTED where |guess - exact| < threshold *
    |exact| (strictly: threshold 0 accepts nothing), else REJECTED; BYPASSED with fewer than 2 * chunk_size
    cached tokens; ACCEPTED for a skipped user, who keeps no member at work."""
    found = []
    for distance, norm, position in zip(distance_sq.tolist(), norm_sq.tolist(), cur_pos, strict=True):
        if position < 0:
            found.append(ACCEPTED)
        elif position + 1 < (2 * chunk_size if ends is None else ends.first + ends.last):
            found.append(BYPASSED)
        else:
            found.append(ACCEPTED if distance < threshold**2 * norm else REJECTED)
    return found


def receiver_outcomes(cur_pos: Sequence[int]) -> list[int]:
    """The receiver's priority of each user once the guess has arrived."""
    return [ACCEPTED if position < 0 else RECEIVED for position in cur_pos]
