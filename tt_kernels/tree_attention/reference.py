# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The torch reference of tree attention: each node attends in float64 to the tokens on its path, found by walking
parents.

It knows neither intervals nor masks. Symbols: b users, n nodes, h query heads, k key/value heads, s cache positions, d
head_dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from tt_kernels.common.attention_checks import TILE
from tt_kernels.speculative_flash_decode.guess_range import GuessRange


def path_of(parents: Sequence[int], node: int) -> list[int]:
    """Return the nodes from the root to `node`, both included. parents: -1 for a root."""
    nodes = []
    while node >= 0:
        nodes.append(node)
        node = parents[node]
    return nodes[::-1]


def tree_attention_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    prefix: Sequence[int],
    parents: Sequence[Sequence[int]],
    *,
    scale: float | None = None,
    cached: Callable[[int, int], Sequence[int]] | None = None,
) -> torch.Tensor:
    """Return float64 [1, h, b * n, d], zeros for skipped users.

    q: [1, h, b * n, d], row u * n + i is node i of user u. k, v: [b, k, s, d]; those of node i of user u at position
        prefix[u] + i. prefix: cached tokens before the tree, -1 for a user to skip. parents: n per user, -1 for a root.
        scale: default 1 / sqrt(d). cached: the cached tokens that all nodes see, by user and key/value head; all of
        them by default.
    """
    heads, head_dim = q.shape[1], q.shape[3]
    users, kv_heads = k.shape[:2]
    nodes, share = len(parents[0]), heads // k.shape[1]
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    found = torch.zeros(q.shape, dtype=torch.float64)
    for user in range(users):
        if prefix[user] < 0:
            continue
        for head in range(kv_heads):
            before = range(prefix[user]) if cached is None else cached(user, head)
            own = slice(head * share, (head + 1) * share)
            for node in range(nodes):
                seen = [*before, *(prefix[user] + n for n in path_of(parents[user], node))]
                keys, values = k[user, head, seen].double(), v[user, head, seen].double()
                row = user * nodes + node
                weights = (scale * q[0, own, row].double() @ keys.mT).softmax(-1)
                found[0, own, row] = weights @ values
    return found


class SpeculatedTrees(NamedTuple):
    """exact, guess: float64 [1, h, b * n, d]. distance_sq, norm_sq: float64 [b], 0 for skipped users. accepted: bool
    [b]. bypassed: bool [b], users whose root has fewer tokens than the guess reads; their guess is the exact result."""

    exact: torch.Tensor
    guess: torch.Tensor
    distance_sq: torch.Tensor
    norm_sq: torch.Tensor
    accepted: torch.Tensor
    bypassed: torch.Tensor


def guessed_tokens(prefix: int, guess: GuessRange, chosen: Sequence[int] = ()) -> list[int]:
    """Return the cached tokens that the guess of a tree after `prefix` cached ones reads: those that its root, with
    prefix + 1 tokens, would read alone, and those of `chosen` tiles."""
    own = prefix + 1
    tiles = -(-own // TILE) - guess.tail_tiles(own)
    return [token for token in range(prefix) if token < guess.first or token >= tiles * TILE or token // TILE in chosen]


def speculative_tree_attention_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    prefix: Sequence[int],
    parents: Sequence[Sequence[int]],
    guess: GuessRange,
    threshold: float,
    *,
    scale: float | None = None,
    chosen: Sequence[Sequence[Sequence[int]]] | None = None,
) -> SpeculatedTrees:
    """Return what the op computes and decides. Arguments as for tree_attention_reference; norms are over the heads of
    all nodes of the tree of a user's first node. chosen: tiles that the guess reads besides, by user and key/value
    head."""

    def cached(user: int, head: int) -> list[int]:
        return guessed_tokens(prefix[user], guess, () if chosen is None else chosen[user][head])

    exact = tree_attention_reference(q, k, v, prefix, parents, scale=scale)
    guessed = tree_attention_reference(q, k, v, prefix, parents, scale=scale, cached=cached)
    nodes = len(parents[0])
    distances, norms = [], []
    for user, tree in enumerate(parents):
        counted = [user * nodes + node for node in range(nodes) if path_of(tree, node)[0] == 0]
        distances.append((guessed[:, :, counted] - exact[:, :, counted]).square().sum())
        norms.append(exact[:, :, counted].square().sum())
    distance_sq, norm_sq = torch.stack(distances), torch.stack(norms)
    skipped = torch.tensor([count < 0 for count in prefix])
    bypassed = torch.tensor([count >= 0 and count + 1 < guess.bypass_below for count in prefix])
    accepted = (distance_sq < threshold**2 * norm_sq) & ~skipped & ~bypassed
    return SpeculatedTrees(exact, guessed, distance_sq, norm_sq, accepted, bypassed)
