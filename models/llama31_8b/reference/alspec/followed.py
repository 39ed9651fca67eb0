# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A guess that follows the attention: beside the first and the last keys it reads the tiles of 32 on which the same
layer's attention lay in an earlier step.

An exact pass sums its softmax weights by tile and key/value head; the next guess of that layer on the same rank reads
the `tiles` heaviest ones of each head. A rank has masses of its own passes only, the steps in which it was the layer's
sender, so they are of the step before or of an older one, never of the present one. The sender of layer 0 is rank 0; a
hit makes the other rank the sender of the next layer (ALSpec paper, algorithm 2). Related selections for sparse
attention (none of which verifies the output): Recycled Attention (arXiv 2411.05787), FreeKV (2505.13109), SparseSpec's
PillarAttn (2512.01278), PRR (2606.30389).

Symbols: m key/value heads (of all users of a group), g query heads per key/value head, t query tokens, n cached tokens.
"""

from __future__ import annotations

import torch

from ..model.attention import Segments
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


class MassFollower:
    """What each rank's last exact pass of each layer knows of each user, and the guesses it makes with it.

    guess_range: with `tiles` above 0 and an alignment of 32. A user is guessed from first and last keys alone until its
    sender has had a pass of the layer after the last prompt, conversation turn or rollback. Users that decode one token
    each share their sender, as on a chip pair: it changes when all of them hit. Users that take several tokens at once,
    whose texts are evaluated, have a sender each. Raises ValueError for other ranges.
    """

    def __init__(self, guess_range: GuessRange) -> None:
        if guess_range.tiles < 1 or guess_range.alignment != TILE:
            raise ValueError(f"followed tiles need GuessRange.tiles >= 1 and an alignment of {TILE}, got {guess_range}")
        self.guess_range = guess_range
        self._own: dict[tuple[int, int], torch.Tensor] = {}  # of a layer and user: [rank, n_kv_heads, tiles]
        self._lengths: dict[int, int] = {}  # of each user's cache after its last step
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
        for user, length in zip(step.users, step.lengths, strict=True):
            if self._lengths.get(user) != length:
                self._own = {key: own for key, own in self._own.items() if key[1] != user}
            self._lengths[user] = length + step.tokens
        self._step, self._layer = step, 0
        self._sender = torch.zeros(len(step.users), step.tokens, dtype=torch.int64)
        self._hits = torch.zeros_like(self._sender, dtype=torch.bool)

    def reset(self) -> None:
        """Forget all masses."""
        self._own.clear()

    def known(self, rank: int, layer: int, user: int) -> torch.Tensor | None:
        """Return the masses [n_kv_heads, tiles] of a rank's last exact pass of a layer for a cache row, None without
        one."""
        own = self._own.get((layer, user))
        return None if own is None or not own[rank].any() else own[rank]

    def guess(self, layer: int, segments: Segments) -> torch.Tensor:
        """Return the guess [queries, n_heads * head_dim], float32, and keep the masses of the exact pass.

        In a chain each query follows those before it, as if the tokens were decoded one by one.
        """
        assert self._step is not None
        if layer != self._layer:
            changed = self._hits if self._step.tokens > 1 else self._hits.all(0, keepdim=True)
            self._sender = self._sender ^ changed.long()
            self._hits, self._layer = torch.zeros_like(self._hits), layer
        scores, values = segments.scores_and_values()
        users, tokens = self._step.users[segments.rows], segments.tokens
        weights = torch.softmax(scores, dim=-1)
        mass = tile_masses(weights).unflatten(0, (len(users), -1))  # [users, kv_heads, t, tiles]
        cached = self._step.cached[segments.rows, tokens]  # [users, t]
        before = torch.stack([self._before(layer, segments, row, mass[row]) for row in range(len(users))])
        read = self._read(before, cached, scores.shape[-1]).flatten(0, 1)  # [m, t, n]
        hidden = scores.masked_fill(~read[:, None], float("-inf"))
        out = torch.matmul(torch.softmax(hidden, dim=-1), values[:, None].float())  # [m, g, t, d]
        return out.unflatten(0, (len(users), -1)).permute(0, 3, 1, 2, 4).flatten(2).flatten(0, 1)

    def decided(self, segments: Segments, accepted: torch.Tensor) -> None:
        """Take the decisions on the guesses of `segments` in the present layer, bool [users, t]."""
        self._hits[segments.rows, segments.tokens] = accepted

    def _before(self, layer: int, segments: Segments, row: int, mass: torch.Tensor) -> torch.Tensor:
        """Return what each query of a user knows, [n_kv_heads, t, tiles]: the masses of its sender's last query before
        it. Keep those of each rank's last one. mass: [n_kv_heads, t, tiles]."""
        assert self._step is not None
        batch_row = segments.rows.start + row
        key = (layer, self._step.users[batch_row])
        own = mass.new_zeros(2, mass.shape[0], mass.shape[2])
        if (kept := self._own.get(key)) is not None:
            own[:, :, : kept.shape[2]] = kept
        sender = self._sender[batch_row, segments.tokens]
        passes = torch.cat((own.transpose(0, 1), mass), dim=1)  # [n_kv_heads, 2 + t, tiles]
        # Of each rank, the last query up to each at which it sent; -2 and -1 stand for the passes kept.
        steps = torch.arange(len(sender))
        sent = [torch.where(sender == rank, steps, rank - 2).cummax(0).values for rank in (0, 1)]
        last = torch.stack([torch.cat((row.new_tensor([rank - 2]), row)) for rank, row in enumerate(sent)])
        self._own[key] = passes[:, last[:, -1] + 2].transpose(0, 1)
        return passes[:, last[sender, steps] + 2]

    def _read(self, before: torch.Tensor, cached: torch.Tensor, slots: int) -> torch.Tensor:
        """Bool [users, n_kv_heads, t, slots]: the keys that each query's guess reads."""
        span = self.guess_range
        start = span.tail_start(cached)[:, None, :, None]
        keys = torch.arange(slots)
        own = cached[:, None, :, None]
        ends = span.reads(keys, own) & (keys < own)
        chosen = heaviest_tiles(before, span.tiles, span.first // TILE, start // TILE)
        return ends | chosen.repeat_interleave(TILE, dim=-1)[..., :slots]
