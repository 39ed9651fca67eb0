# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The interface of a decode step's attention, and what it wants done around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import ttnn

from tt_kernels.tree_attention.op import tree_attention

from ...results import AttentionStatistics


class TokenHeads(NamedTuple):
    """One token a user at its position: bfloat16 [1, users, heads, head_dim], TILE. queries: as attention takes them.
    keys, values: of the chip's KV heads, in L1, a core a user."""

    queries: ttnn.Tensor
    keys: ttnn.Tensor
    values: ttnn.Tensor


class DecodeAttention(ABC):
    """Attention of one token a user over its cache, and what it wants done around it in a decode step.

    Only attention-level speculation wants anything: for the others the hooks do nothing. takes_shards: whether queries
    may also lie a core a user; the result is then interleaved in L1.
    """

    takes_shards = False

    def begin_step(self) -> None:
        """Before the first layer."""

    def before_attention(self, residual: ttnn.Tensor, heads: TokenHeads) -> None:
        """Before each layer's cache is written: the layer's input, bfloat16 [1, 1, users, hidden / tp], and what
        was made of it; may change them in place."""

    @abstractmethod
    def __call__(
        self, layer: int, q: ttnn.Tensor, keys: ttnn.Tensor, values: ttnn.Tensor, positions: ttnn.Tensor
    ) -> ttnn.Tensor:
        """q: bfloat16 [1, users, heads / tp, head_dim], TILE, interleaved; keys, values: the layer's cache
        with the new token written; positions: int32 [users], -1 for a user to skip -> [1, users, heads / tp,
        head_dim]."""

    def check_trees(self) -> None:
        """Errors: ValueError where this attention does not attend to token trees."""
        raise ValueError(
            f"{type(self).__name__} guesses one result a user and step; token trees are decoded with exact attention"
        )

    def attend_tree(
        self,
        q: ttnn.Tensor,
        keys: ttnn.Tensor,
        values: ttnn.Tensor,
        prefix: ttnn.Tensor,
        intervals: ttnn.Tensor,
    ) -> ttnn.Tensor:
        """q: bfloat16 [1, heads / tp, users * nodes, head_dim]; keys, values: the layer's cache with the nodes
        written; prefix, intervals: as of `tree_attention` -> of q's shape."""
        self.check_trees()
        return tree_attention(q, keys, values, prefix, intervals)

    def until_next_attention(self, layer: int) -> AbstractContextManager[None]:
        """What follows a layer's attention, up to the next layer's queries, keys and values, is launched inside."""
        return nullcontext()

    def end_step(self, residual: ttnn.Tensor) -> None:
        """After the last layer, whose output is of its input's shape; may change it in place."""

    def guard(self, tokens: ttnn.Tensor) -> None:
        """After the choice of tokens, uint32 [1, users]: overwrite them where the step went wrong on a chip."""

    def check(self) -> None:
        """Raises when a step went wrong on a chip; waits for the device if it has to look there."""

    def reset(self) -> None:
        """Before a generation: forget what was counted."""

    def statistics(self) -> AttentionStatistics | None:
        """What was counted since `reset`, None where nothing is verified; waits for the device."""
        return None
