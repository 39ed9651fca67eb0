# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The interface of attention in decode steps, with hooks for what speculation does around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import ttnn

from tt_kernels.tree_attention.op import tree_attention

from ...results import AttentionStatistics


class TokenHeads(NamedTuple):
    """One token per user at its position: bfloat16 [1, users, heads, head_dim], TILE. queries: as attention takes them.
    keys, values: the chip's KV heads, in L1, one core per user. Or the nodes of users' trees: [1, heads, users * nodes,
    head_dim] each, in DRAM."""

    queries: ttnn.Tensor
    keys: ttnn.Tensor
    values: ttnn.Tensor


class DecodeAttention(ABC):
    """Attention of one token per user over its cache. The hooks around it do nothing except in speculation.

    takes_shards: whether queries may also be sharded, one core per user; the result is then interleaved in L1.
    """

    takes_shards = False

    def reset_priority(self) -> None:
        """Called before the first layer."""

    def choose_tiles(self, positions: ttnn.Tensor) -> None:
        """Called before the first layer, with the step's positions, int32 [users]."""

    def exchange_inputs(self, residual: ttnn.Tensor, heads: TokenHeads) -> None:
        """Called before each layer's cache is written, with the layer's input, bfloat16 [1, 1, users (* nodes), hidden
        / tp], and the heads made from it; may change them in place."""

    @abstractmethod
    def __call__(
        self,
        layer: int,
        q: ttnn.Tensor,
        keys: ttnn.Tensor,
        values: ttnn.Tensor,
        positions: ttnn.Tensor,
        page_table: ttnn.Tensor | None = None,
    ) -> ttnn.Tensor:
        """q: bfloat16 [1, users, heads / tp, head_dim], TILE, interleaved; keys, values: the layer's cache with the new
        token written; positions: int32 [users], -1 skips a user; page_table: of a paged cache, int32 [users, blocks].
        Returns [1, users, heads / tp, head_dim]."""

    def check_trees(self) -> None:
        """Raises ValueError if this attention cannot decode token trees."""
        raise ValueError(
            f"{type(self).__name__} guesses one result per user and step; token trees need attention that is exact "
            "or verifies its guesses"
        )

    def attend_tree(
        self,
        layer: int,
        q: ttnn.Tensor,
        keys: ttnn.Tensor,
        values: ttnn.Tensor,
        prefix: ttnn.Tensor,
        intervals: ttnn.Tensor,
        page_table: ttnn.Tensor | None = None,
    ) -> ttnn.Tensor:
        """q: bfloat16 [1, heads / tp, users * nodes, head_dim]; keys, values: the layer's cache with the nodes written;
        prefix, intervals, page_table: see `tree_attention`. Returns q's shape."""
        self.check_trees()
        return tree_attention(q, keys, values, prefix, intervals, page_table=page_table)

    def gate(self, layer: int) -> AbstractContextManager[None]:
        """Enclose the launches from a layer's attention to the next layer's queries, keys and values."""
        return nullcontext()

    def exchange_output(self, residual: ttnn.Tensor) -> None:
        """Called after the last layer with its output, shaped as its input; may change it in place."""

    def guard_tokens(self, tokens: ttnn.Tensor) -> None:
        """Overwrite the chosen tokens, uint32 [1, users], where the step went wrong on a chip."""

    def guard_result(self, result: ttnn.Tensor) -> None:
        """Overwrite a verification result (speculative_sampling) where the step went wrong on a chip."""

    def check(self) -> None:
        """Raises if a step went wrong on a chip; waits for the device if it has to look there."""

    def reset(self) -> None:
        """Forget what was counted; called before each generation."""

    def statistics(self) -> AttentionStatistics | None:
        """Return what was counted since `reset`, None if nothing is verified; waits for the device."""
        return None
