# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Guesses by a budget for the rows of a transformers model, from what each row's exact passes know
(../reference/alspec/budget.py).

Symbols: B rows, H query heads, K key/value heads, q query tokens, n cached tokens, d head size.
"""

from __future__ import annotations

import math

import torch

from ..reference.alspec.budget import guess_by_budget
from ..reference.model.step import QUERY_BLOCK, GuessRange


class RowBudgets:
    """Hold the attention weights that two ranks would know of each row, and make the guesses.

    Every row is a text by itself with a sender of its own. What is known of a row is forgotten at a prompt, and where
    its step does not follow the one before (a cropped cache); beams that change rows leave theirs behind, which costs
    hits only. Nothing here waits for the device.
    """

    def __init__(self, guess_range: GuessRange) -> None:
        self.guess_range = guess_range
        self._sender = torch.zeros(0, 0, dtype=torch.int64)
        self.forget()

    def forget(self) -> None:
        """Forget all weights."""
        self._known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # of a layer: weights [B, 2, K, tiles], lengths

    def guess(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        visible: torch.Tensor | None,
        scale: float | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the guess of a step, [B, q, H, d], and int64 [B, q], how many keys each query sees.

        query: [B, H, q, d]; key, value: [B, K, n, d]. visible: bool [B, q, n], keys that a query sees; None for causal
        attention whose last query is the last key's.
        """
        rows, _, queries, size = query.shape
        keys = torch.arange(key.shape[2], device=query.device)
        position = None
        if visible is None:
            cached = (keys[-queries:] + 1).expand(rows, -1)
        else:
            cached = visible.sum(2)
            position = (visible[:, -1].cumsum(1) - 1).clamp(min=0)
        if layer == 0:
            self._sender = torch.zeros_like(cached)
        before, out = self._before(layer, cached), []
        grouped = query.unflatten(1, (key.shape[1], -1))
        scaled = grouped * (1 / math.sqrt(size) if scale is None else scale)
        self._sender = self._sender.to(query.device)
        for start in range(0, queries, QUERY_BLOCK):
            block = slice(start, start + QUERY_BLOCK)
            end = key.shape[2] - queries + min(queries, block.stop)
            sees = keys[:end] < cached[:, block, None] if visible is None else visible[:, block, :end]
            scores = (scaled[:, :, :, block] @ key[:, :, None, :end].mT).float()
            scores = scores.masked_fill(~sees[:, None, None], float("-inf"))
            at = None if position is None else position[:, :end]
            part, before = guess_by_budget(
                scores, value[:, :, :end], self.guess_range, cached[:, block], self._sender[:, block], before, at
            )
            out.append(part)
        assert before is not None
        self._known[layer] = before, cached[:, -1]
        return torch.cat(out, dim=1).to(query.dtype), cached

    def decided(self, accepted: torch.Tensor) -> None:
        """Take a layer's decisions, bool [B, q]: a hit makes the other rank the sender of the row's next layer."""
        self._sender = self._sender ^ accepted.long()

    def _before(self, layer: int, cached: torch.Tensor) -> torch.Tensor | None:
        """Return what is known of rows whose step follows the one before, zeros for others; None for nothing."""
        if layer not in self._known or len(self._known[layer][1]) != len(cached):
            return None
        weights, lengths = self._known[layer]
        return weights * (lengths == cached[:, 0] - 1)[:, None, None, None]
