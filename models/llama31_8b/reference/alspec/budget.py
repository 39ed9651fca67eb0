# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A guess by a budget: beside the first and the last keys it reads the tiles of 32 keys that hold most of the attention
weight, as many as the weight asks for.

An exact pass sums its softmax weights by tile and key/value head into a moving average. The next guess of that layer on
the same rank reads each head's heaviest tiles until at most 1 - budget of that weight is left unread. A rank knows its
own passes alone, the steps in which it was the layer's sender: those of the step before or older ones, never of the
present one. The sender of layer 0 is rank 0; a hit makes the other rank the sender of the next layer (ALSpec paper,
algorithm 2). Related selections for sparse attention, none of which verifies the output: Twilight (arXiv 2502.02770, a
budget of weight), Recycled Attention (2411.05787), SparseSpec's PillarAttn (2512.01278).

Symbols: u users, k key/value heads of a user, g query heads per key/value head, t query tokens, n cached tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..model.attention import Segments
from ..model.step import DecodeStep, GuessRange

TILE = 32
DECAY = 0.5  # the part of the past in the moving average


def tile_masses(weights: torch.Tensor, position: torch.Tensor | None = None) -> torch.Tensor:
    """Return softmax weights [..., g, t, n] summed over query heads and tiles of 32 keys: [..., t, ceil(n / 32)].

    position: int64 [u, n], of the keys of weights [u, k, g, t, n], where it is not their number.
    """
    mass = weights.sum(-3)
    if position is None:
        return F.pad(mass, (0, -mass.shape[-1] % TILE)).unflatten(-1, (-1, TILE)).sum(-1)
    found = mass.new_zeros(*mass.shape[:-1], -(-mass.shape[-1] // TILE))
    return found.scatter_add_(-1, (position // TILE)[:, None, None].expand_as(mass), mass)


def running_averages(
    before: torch.Tensor, passes: torch.Tensor, sent: torch.Tensor, decay: float = DECAY
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the moving average before each of t tokens, [..., k, t, tiles], and after the last, [..., k, tiles].

    before: [..., k, tiles], as the second. passes: [..., k, t, tiles], the weights of each token's pass. sent: bool
    [..., t], the passes that count.
    """
    count = sent.cumsum(-1)
    older = (count[..., :, None] - count[..., None, :]).clamp(min=0)
    share = torch.tril((1 - decay) * decay**older * sent[..., None, :]).to(passes.dtype)
    past = (decay**count).to(passes.dtype)
    after = share[..., None, :, :] @ passes + past[..., None, :, None] * before[..., None, :]
    return torch.cat((before[..., None, :], after[..., :-1, :]), dim=-2), after[..., -1, :]


def tiles_by_budget(known: torch.Tensor, budget: float, first: int, end: torch.Tensor) -> torch.Tensor:
    """Choose tiles by weight: bool [..., tiles].

    The heaviest tiles of [first, end), the lower one first where two are equal, until at most 1 - budget of all known
    weight lies in unread tiles of that range; never a tile without weight.

    known: [..., tiles], not negative. end: integer tensor that broadcasts against [..., 1].
    """
    tile = torch.arange(known.shape[-1], device=known.device)
    between = (tile >= first) & (tile < end)
    weight, order = known.double().masked_fill(~between, 0.0).sort(dim=-1, descending=True, stable=True)
    left = weight.flip(-1).cumsum(-1).flip(-1)  # unread before this tile is read
    taken = (left > (1 - budget) * known.double().sum(-1, keepdim=True)) & (weight > 0)
    return torch.zeros_like(taken).scatter_(-1, order, taken)


def keys_by_budget(
    known: torch.Tensor, guess_range: GuessRange, cached: torch.Tensor, position: torch.Tensor
) -> torch.Tensor:
    """Return which keys each query's guess reads, of those it sees: bool [u, k, t, n].

    known: [u, k, t, tiles]. cached: [u, t], tokens that each query attends to, itself included. position: int64 [u or
    1, n], of each key. guess_range: with a budget.
    """
    assert guess_range.budget is not None
    own = cached[:, None, :, None]
    end = guess_range.tail_start(own) // TILE
    chosen = tiles_by_budget(known, guess_range.budget, guess_range.first // TILE, end)
    tile = (position // TILE)[:, None, None].expand(*chosen.shape[:-1], -1)
    return guess_range.reads(position[:, None, None], own) | chosen.gather(-1, tile)


def guess_by_budget(
    scores: torch.Tensor,
    values: torch.Tensor,
    guess_range: GuessRange,
    cached: torch.Tensor,
    sender: torch.Tensor,
    before: torch.Tensor | None,
    position: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the guess, float32 [u, t, heads, d], and what each rank knows after these queries, [u, 2, k, tiles].

    Of several queries each follows those before it, as if the tokens were decoded one by one. The nodes of a token tree
    read what the root's guess reads, of the tree's own keys all that they see; the root's exact pass alone is kept.

    Args:
        scores: float32 [u, k, g, t, n], scaled; -inf hides a key.
        values: [u, k, n, d].
        guess_range: what is read, with a budget.
        cached: int64 [u, t], tokens that each query attends to, itself included; of a token tree [u, 1], its root's.
        sender: int64, as `cached`, the rank that sends this layer, 0 or 1.
        before: what each rank knew, [u, 2, k, tiles] of any number of tiles; None for nothing.
        position: int64 [u, n], of each key in its text; None for the key's number.
    """
    counted = scores[..., : cached.shape[1], :]
    passes = tile_masses(torch.softmax(counted, dim=-1), position)  # [u, k, t or 1, tiles]
    if before is None:
        before = passes.new_zeros(len(passes), 2, passes.shape[1], 0)
    # A tree, or drafts, may have reached beyond what was kept of them: then tiles are cut off.
    old = F.pad(before, (0, passes.shape[-1] - before.shape[-1]))
    averages = [running_averages(old[:, rank], passes, sender == rank) for rank in (0, 1)]
    mine = (sender == 0)[:, None, :, None]
    known = torch.where(mine, averages[0][0], averages[1][0])
    if position is None:
        position = torch.arange(scores.shape[-1], device=scores.device)[None]
    read = keys_by_budget(known, guess_range, cached, position)
    weights = torch.softmax(scores.masked_fill(~read[:, :, None], float("-inf")), dim=-1)
    out = torch.matmul(weights, values[:, :, None].float())  # [u, k, g, t, d]
    return out.permute(0, 3, 1, 2, 4).flatten(2, 3), torch.stack([after for _, after in averages], dim=1)


class BudgetGuess:
    """What each rank's exact passes of each layer know of each user, and the guesses it makes with it.

    guess_range: with a budget. A user is guessed from first and last keys alone until its sender has had a pass of the
    layer after the last prompt, conversation turn or rollback. The nodes of a token tree that are not kept are no
    rollback. Users that decode one token or one tree each share their sender, as on a chip pair: it changes when all of
    them hit. Users that take several tokens at once, whose texts are evaluated, have a sender each.
    """

    def __init__(self, guess_range: GuessRange) -> None:
        self.guess_range = guess_range
        self._own: dict[tuple[int, int], torch.Tensor] = {}  # of a layer and user: [rank, n_kv_heads, tiles]
        self._lengths: dict[int, range] = {}  # of each user's cache after its last step: a tree keeps 1 to all nodes
        self._step: DecodeStep | None = None

    def begin_step(self, step: DecodeStep) -> None:
        for user, length in zip(step.users, step.lengths, strict=True):
            if length not in self._lengths.get(user, ()):
                self._own = {key: own for key, own in self._own.items() if key[1] != user}
            longest = length + step.tokens
            self._lengths[user] = range(longest if step.tree is None else length + 1, longest + 1)
        self._step, self._layer = step, 0
        self._together = step.tree is not None or step.tokens == 1
        self._sender = torch.zeros(len(step.users), 1 if self._together else step.tokens, dtype=torch.int64)
        self._hits = torch.zeros_like(self._sender, dtype=torch.bool)

    def reset(self) -> None:
        """Forget all weights."""
        self._own.clear()

    def known(self, rank: int, layer: int, user: int) -> torch.Tensor | None:
        """Return the average [n_kv_heads, tiles] of a rank's exact passes of a layer for a cache row, None without
        one."""
        own = self._own.get((layer, user))
        return None if own is None or not own[rank].any() else own[rank]

    def guess(self, layer: int, segments: Segments) -> torch.Tensor:
        """Return the guess [queries, n_heads * head_dim], float32, and keep the weights of the exact pass."""
        assert self._step is not None
        if layer != self._layer:
            changed = self._hits.all(0, keepdim=True) if self._together else self._hits
            self._sender = self._sender ^ changed.long()
            self._hits, self._layer = torch.zeros_like(self._hits), layer
        rows, tokens = segments.rows, self._decided_tokens(segments)
        users = self._step.users[rows]
        scores, values = (part.unflatten(0, (len(users), -1)) for part in segments.scores_and_values())
        tiles = -(-scores.shape[-1] // TILE)
        nothing = scores.new_zeros(2, scores.shape[1], tiles)
        own = [self._own.get((layer, user), nothing) for user in users]
        before = torch.stack([F.pad(each, (0, tiles - each.shape[-1])) for each in own])
        cached, sender = self._step.cached[rows, tokens], self._sender[rows, tokens]
        out, after = guess_by_budget(scores, values, self.guess_range, cached, sender, before)
        self._own |= {(layer, user): own for user, own in zip(users, after, strict=True)}
        return out.flatten(2).flatten(0, 1)

    def decided(self, segments: Segments, accepted: torch.Tensor) -> None:
        """Take the decisions on the guesses of `segments` in the present layer, bool [users, t]."""
        tokens = self._decided_tokens(segments)
        self._hits[segments.rows, tokens] = accepted[:, : self._hits.shape[1]]

    def _decided_tokens(self, segments: Segments) -> slice:
        """Return the tokens that are guessed and decided by themselves: of a tree its root, for all nodes."""
        return slice(0, 1) if self._together else segments.tokens
