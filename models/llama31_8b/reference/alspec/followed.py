# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A guess that follows the attention: beside the first and the last keys it reads the tiles of 32 on which the same
layer's attention lay one step before.

The exact pass of a step sums its softmax weights by tile and key/value head; the next step of that layer reads the
`tiles` heaviest ones of each head. A step never knows its own masses, only those of the last exact pass. Related
selections for sparse attention (none of which verifies the output): Recycled Attention (arXiv 2411.05787), FreeKV
(2505.13109), SparseSpec's PillarAttn (2512.01278), PRR (2606.30389).

Symbols: m key/value heads (of all users of a group), g query heads per key/value head, t query tokens, n cached tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..model.attention import ManyQueries, OneQuery, Segments
from ..model.step import QUERY_BLOCK, DecodeStep, GuessRange

TILE = 32


def tile_masses(weights: torch.Tensor) -> torch.Tensor:
    """Return the softmax weights [m, g, t, n] summed over query heads and tiles of 32 keys: [m, t, ceil(n / 32)]."""
    mass = weights.sum(1)
    return torch.nn.functional.pad(mass, (0, -mass.shape[-1] % TILE)).unflatten(-1, (-1, TILE)).sum(-1)


def heaviest_tiles(mass: torch.Tensor, count: int, first: int, end: torch.Tensor) -> torch.Tensor:
    """Choose tiles by mass: bool [..., tiles], at most `count` true in each row.

    mass: [..., tiles], not negative. Only tiles [first, end) with mass are chosen, the lower one first where two are
    equal. end: integer tensor that broadcasts against [..., 1].
    """
    tile = torch.arange(mass.shape[-1])
    inside = (tile >= first) & (tile < end) & (mass > 0)
    order = mass.masked_fill(~inside, -1.0).sort(dim=-1, descending=True, stable=True).indices
    chosen = torch.zeros_like(mass, dtype=torch.bool)
    chosen.scatter_(-1, order[..., :count], True)
    return chosen & inside


class _Known(NamedTuple):
    """Masses [n_kv_heads, tiles] of the last exact pass over a user's cache when it held `length` tokens."""

    length: int
    mass: torch.Tensor


class MassFollower:
    """What each layer's last exact pass knows of each user, and the guesses it makes with it.

    guess_range: with `tiles` above 0 and an alignment of 32. A user whose last pass was not the step before (after a
    prompt, a conversation turn, a rejected draft) is guessed from first and last keys alone. Raises ValueError for
    other ranges.
    """

    def __init__(self, guess_range: GuessRange) -> None:
        if guess_range.tiles < 1 or guess_range.alignment != TILE:
            raise ValueError(f"followed tiles need GuessRange.tiles >= 1 and an alignment of {TILE}, got {guess_range}")
        self.guess_range = guess_range
        self._known: dict[tuple[int, int], _Known] = {}
        self._step: DecodeStep | None = None

    def begin_step(self, step: DecodeStep) -> None:
        """Raises ValueError for token trees, whose nodes have no step before them, and for whole texts at once."""
        if step.tree is not None:
            raise ValueError("a guess that follows the attention is of one token after another, not of a token tree")
        if step.whole_texts:
            raise ValueError(
                f"a guess that follows the attention takes at most {QUERY_BLOCK} tokens of a text at once, got "
                f"{step.tokens}"
            )
        self._step = step

    def reset(self) -> None:
        """Forget all masses."""
        self._known.clear()

    def known(self, layer: int, user: int) -> torch.Tensor | None:
        """Return the masses [n_kv_heads, tiles] of the layer's last exact pass for a cache row, None without one."""
        found = self._known.get((layer, user))
        return None if found is None else found.mass

    def guess(self, layer: int, segments: Segments) -> torch.Tensor:
        """Return the guess [queries, n_heads * head_dim], float32, and keep the masses of the exact pass.

        In a chain each query follows the one before it, as if the tokens were decoded one by one.
        """
        assert self._step is not None
        scores, values = _open(segments)
        users, tokens = self._step.users[segments.rows], segments.tokens
        weights = torch.softmax(scores, dim=-1)
        mass = tile_masses(weights).unflatten(0, (len(users), -1))  # [users, kv_heads, t, tiles]
        cached = self._step.cached[segments.rows, tokens]  # [users, t]
        before = torch.stack([self._before(layer, segments, row, mass[row]) for row in range(len(users))])
        read = self._read(before, cached, scores.shape[-1]).flatten(0, 1)  # [m, t, n]
        hidden = scores.masked_fill(~read[:, None], float("-inf"))
        out = torch.matmul(torch.softmax(hidden, dim=-1), values[:, None].float())  # [m, g, t, d]
        for row, user in enumerate(users):
            self._known[layer, user] = _Known(int(cached[row, -1]), mass[row, :, -1])
        return out.unflatten(0, (len(users), -1)).permute(0, 3, 1, 2, 4).flatten(2).flatten(0, 1)

    def _before(self, layer: int, segments: Segments, row: int, mass: torch.Tensor) -> torch.Tensor:
        """[n_kv_heads, t, tiles]: what each query of a user knows: the masses of the query before it."""
        assert self._step is not None
        batch_row = segments.rows.start + row
        known = self._known.get((layer, self._step.users[batch_row]))
        first = torch.zeros_like(mass[:, :1])
        if known is not None and known.length == self._step.lengths[batch_row] + segments.tokens.start:
            first[:, 0, : known.mass.shape[-1]] = known.mass
        return torch.cat((first, mass[:, :-1]), dim=1)

    def _read(self, before: torch.Tensor, cached: torch.Tensor, slots: int) -> torch.Tensor:
        """bool [users, n_kv_heads, t, slots]: the keys that each query's guess reads."""
        span = self.guess_range
        start = span.tail_start(cached)[:, None, :, None]
        keys = torch.arange(slots)
        ends = (keys < span.first) | ((keys >= start) & (keys < cached[:, None, :, None]))
        chosen = heaviest_tiles(before, span.tiles, span.first // TILE, start // TILE)
        return ends | chosen.repeat_interleave(TILE, dim=-1)[..., :slots]


def _open(segments: Segments) -> tuple[torch.Tensor, torch.Tensor]:
    """(scores [m, g, t, n] with -inf where hidden, values [m, n, d])."""
    if isinstance(segments, OneQuery):
        scores = torch.bmm(segments.query, segments.keys.transpose(1, 2)).float()[:, :, None]
        return scores, segments.values
    if isinstance(segments, ManyQueries):
        scores = segments.scores.masked_fill(~segments.visible, float("-inf"))
        return scores, segments.values
    raise TypeError(f"segments of type {type(segments).__name__} have no scores to follow")
