# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the adapter needs of a model with a paged cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch


class Engine(Protocol):
    """A model with a KV cache in blocks.

    users: slots of a decode step. vocab_size: columns of logits. pages: int32 [blocks], or one row per slot, [users,
    blocks]: the cache's block that holds a sequence's positions from block_size * column on; columns after a sequence's
    end name a block that nobody reads.
    """

    users: int
    vocab_size: int

    def prefill(self, tokens: Sequence[int], start: int, pages: torch.Tensor) -> torch.Tensor:
        """Cache tokens at positions from `start`, a multiple of the block size; return the last one's logits, float32
        [vocab]."""

    def decode(self, tokens: torch.Tensor, positions: torch.Tensor, pages: torch.Tensor) -> Any:
        """Start a step of one token per slot, int [users] each; a position of -1 skips a slot."""

    def verify(self, tokens: torch.Tensor, positions: torch.Tensor, pages: torch.Tensor) -> Any:
        """Start a step of 1 + K consecutive tokens per slot, int [users, 1 + K]. A first position of -1 skips a
        slot."""

    def read(self, step: Any) -> torch.Tensor:
        """Wait for a step and return its logits, float32 [users, tokens, vocab]."""

    def warm_up_prefill(self) -> None:
        """Compile what prompts of any length need."""

    def warm_up_decode(self, traced: bool) -> None:
        """Compile a decode step; traced: also record its trace."""
