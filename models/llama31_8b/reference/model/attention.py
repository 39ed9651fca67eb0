# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode attention in segments, from which a policy (../alspec/policies.py) takes the guess or the exact result.

The cached positions of a query fall into the first S, the last S and the middle (S is `chunk_size`).
Attention over first and last is one partial result, which normalised is the guess; merged by online softmax
with the partial over the middle it is the exact result (ALSpec paper, section 4.1 and algorithm 3). So the
guess costs no pass of its own.

Symbols: b users, h query heads, g query heads per key/value head, d head_dim, t query tokens, n cached tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F

from .step import DecodeStep

if TYPE_CHECKING:
    from ..alspec.policies import AttentionPolicy


class Partial(NamedTuple):
    """Unnormalised attention over some keys, float32: out [m, r, d], row_max and row_sum [m, r, 1] for m key/value
    heads and r query rows. The attention over those keys is out / row_sum."""

    out: torch.Tensor
    row_max: torch.Tensor
    row_sum: torch.Tensor


# Stands in for the row_max of a row that sees no key: exp(-inf - LOWEST) is 0; exp(-inf + inf) would be NaN.
LOWEST = -1e30


def partial_attention(scores: torch.Tensor, *values: torch.Tensor) -> Partial:
    """Return softmax numerators of `scores` [m, r, n] (scaled; -inf hides a key, or all) times values, given as
    consecutive pieces [m, n_i, d] that add up to n."""
    row_max = scores.amax(-1, keepdim=True).clamp_(min=LOWEST)
    weights = (scores - row_max).exp_()
    parts = weights.split([piece.shape[1] for piece in values], dim=2)
    shares = [torch.bmm(part.to(piece.dtype), piece).float() for part, piece in zip(parts, values, strict=True)]
    return Partial(sum(shares[1:], shares[0]), row_max, weights.sum(-1, keepdim=True))


def merge(a: Partial, b: Partial) -> torch.Tensor:
    """Return attention over the keys of both, normalised: the online softmax combination of algorithm 3, line 24."""
    row_max = torch.maximum(a.row_max, b.row_max)
    rescale_a, rescale_b = (a.row_max - row_max).exp_(), (b.row_max - row_max).exp_()
    out = torch.addcmul(a.out * rescale_a, b.out, rescale_b)
    return out / torch.addcmul(a.row_sum * rescale_a, b.row_sum, rescale_b)


class Segments(ABC):
    """Attention of the queries that share one geometry: `guess()` reads the first and the last S keys, `exact()` all of
    them, merging the middle's partial result into the guess's. Both return [queries, n_heads * head_dim], float32.

    eligible: whether a query has at least 2S cached tokens; one bool when all agree, else bool [queries]. rows, tokens:
    the slices of the step's [batch, T] that hold these queries.
    """

    eligible: bool | torch.Tensor
    rows: slice
    tokens: slice

    @cached_property
    def _ends(self) -> Partial:
        return self._first_and_last()

    def guess(self) -> torch.Tensor:
        return self._flatten(self._ends.out / self._ends.row_sum)

    def exact(self) -> torch.Tensor:
        middle, ends = self._middle(), self._ends
        return self._flatten(ends.out / ends.row_sum if middle is None else merge(ends, middle))

    @abstractmethod
    def scores_and_values(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all scores [m, g, t, n], -inf where hidden, and values [m, n, d]."""

    @abstractmethod
    def _first_and_last(self) -> Partial: ...

    @abstractmethod
    def _middle(self) -> Partial | None: ...

    @abstractmethod
    def _flatten(self, out: torch.Tensor) -> torch.Tensor: ...


@dataclass(eq=False)
class OneQuery(Segments):
    """Plain decoding: one query per user, users with equally many cached tokens; segments are slices.

    query: [users * n_kv_heads, g, d], already scaled. keys, values: [users * n_kv_heads, n, d].
    """

    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    users: int
    cut: tuple[int, int] | None
    rows: slice

    def __post_init__(self) -> None:
        self.eligible, self.tokens = self.cut is not None, slice(0, 1)

    def _first_and_last(self) -> Partial:
        if self.cut is None:
            return partial_attention(self._scores(self.keys), self.values)
        first, last = self.cut
        scores = torch.cat((self._scores(self.keys[:, :first]), self._scores(self.keys[:, last:])), dim=2)
        return partial_attention(scores, self.values[:, :first], self.values[:, last:])

    def _middle(self) -> Partial | None:
        if self.cut is None or self.cut[0] == self.cut[1]:
            return None
        middle = slice(*self.cut)
        return partial_attention(self._scores(self.keys[:, middle]), self.values[:, middle])

    def _scores(self, keys: torch.Tensor) -> torch.Tensor:
        return torch.bmm(self.query, keys.transpose(1, 2)).float()

    def _flatten(self, out: torch.Tensor) -> torch.Tensor:
        return out.view(self.users, -1)

    def scores_and_values(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._scores(self.keys)[:, :, None], self.values


@dataclass(eq=False)
class ManyQueries(Segments):
    """A block of query tokens of one user. In a chain each query has its own last S keys, as if the tokens were decoded
    one by one; the nodes of a token tree share the root's, and their guess reads all of the tree's keys that they see.

    query: [n_kv_heads, g, t, d], scaled. keys, values: [n_kv_heads, n, d]. visible, ends: bool [t, n].
    """

    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    visible: torch.Tensor
    ends: torch.Tensor
    eligible: torch.Tensor
    row: int
    tokens: slice

    def __post_init__(self) -> None:
        scores = torch.bmm(self.query.flatten(1, 2), self.keys.transpose(1, 2)).float()
        self.scores = scores.unflatten(1, self.query.shape[1:3])
        self.rows = slice(self.row, self.row + 1)

    def _first_and_last(self) -> Partial:
        return self._partial(self.visible & self.ends)

    def _middle(self) -> Partial:
        return self._partial(self.visible & ~self.ends)

    def _partial(self, keys: torch.Tensor) -> Partial:
        return partial_attention(self.scores.masked_fill(~keys, float("-inf")).flatten(1, 2), self.values)

    def _flatten(self, out: torch.Tensor) -> torch.Tensor:
        groups, tokens = self.scores.shape[1:3]
        return out.unflatten(1, (groups, tokens)).permute(2, 0, 1, 3).reshape(tokens, -1)

    def scores_and_values(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.scores.masked_fill(~self.visible, float("-inf")), self.values


def decode_attention(
    policy: AttentionPolicy, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, step: DecodeStep
) -> torch.Tensor:
    """Compute the attention of one decode step under a policy.

    query: [b, T, h, d], rotated and scaled. keys, values: the layer's whole cache [users, n_kv_heads,
    capacity, d], the step's own entries written. Returns [b, T, h * d], float32.
    """
    kv_heads, head_dim = keys.shape[1], keys.shape[3]
    if step.tokens == 1 and not step.earlier:
        outs = []
        for group in step.groups:
            users, n = group.end - group.start, group.length + 1
            rows = slice(group.storage, group.storage + users)
            segments: Segments = OneQuery(
                query[group.start : group.end].reshape(users * kv_heads, -1, head_dim),
                keys[rows].flatten(0, 1)[:, :n],
                values[rows].flatten(0, 1)[:, :n],
                users,
                step.guess_range.cut(n),
                slice(group.start, group.end),
            )
            outs.append(policy.attend(layer, segments))
        out = outs[0] if len(outs) == 1 else torch.cat(outs)
        return out[:, None]
    out = query.new_empty((*query.shape[:2], query.shape[2] * head_dim), dtype=torch.float32)
    for row, user in enumerate(step.users):
        # [T, h, d] -> [n_kv_heads, g, T, d]
        mine = query[row].unflatten(1, (kv_heads, -1)).permute(1, 2, 0, 3)
        for block in step.blocks():
            n = step.slots(row, block)
            visible, ends = step.masks(row, block)
            eligible = step.eligible[row, block]
            segments = ManyQueries(
                mine[:, :, block], keys[user, :, :n], values[user, :, :n], visible, ends, eligible, row, block
            )
            out[row, block] = policy.attend(layer, segments)
    return out


def dense_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, step: DecodeStep, scale: float
) -> torch.Tensor:
    """Compute exact attention in one softmax, as in prefill. Shapes as decode_attention, query unscaled."""
    out = query.new_empty((*query.shape[:2], query.shape[2] * query.shape[3]))
    for row, user in enumerate(step.users):
        mine = query[row : row + 1].transpose(1, 2)
        causal = step.tree is None and (step.lengths[row] == 0 or step.tokens == 1)
        for block in (slice(0, step.tokens),) if causal else step.blocks():
            n = step.slots(row, block)
            attended = F.scaled_dot_product_attention(
                mine[:, :, block],
                keys[user : user + 1, :, :n],
                values[user : user + 1, :, :n],
                attn_mask=None if causal else step.visible(row, block),
                is_causal=causal and step.tokens > 1,
                scale=scale,
                enable_gqa=True,
            )
            out[row, block] = attended[0].transpose(0, 1).flatten(1)
    return out
