# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the adapter needs of a model with a paged cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch

from ..generation.sampling_params import SamplingParams


class Draw(NamedTuple):
    """How a slot's next token is chosen. number: in [0, 1), of the token at which the cumulative mass exceeds it. The
    seed in `params` is unused: `number` follows from it."""

    params: SamplingParams
    number: float


class Engine(Protocol):
    """A model with a KV cache in blocks.

    users: slots of a decode step. vocab_size: columns of logits. pages: int32 [blocks], or one row per slot, [users,
    blocks]: the cache's block that holds a sequence's positions from block_size * column on; columns after a sequence's
    end name a block that nobody reads. A step is what its launch returns; a later launch may overwrite its result,
    unless `start_read` came first.
    """

    users: int
    vocab_size: int

    def prefill(self, tokens: Sequence[int], start: int, pages: torch.Tensor) -> torch.Tensor:
        """Cache tokens at positions from `start`, a multiple of the block size; return the last one's logits, float32
        [vocab]."""

    def decode(self, tokens: torch.Tensor, positions: torch.Tensor, pages: torch.Tensor) -> Any:
        """Start a step of one token per slot, int [users] each; a position of -1 skips a slot. It yields logits."""

    def sample(
        self, tokens: torch.Tensor | None, positions: torch.Tensor, pages: torch.Tensor, draws: Sequence[Draw]
    ) -> Any:
        """Start a step as `decode` does, that yields each slot's next token, chosen on the device, which also keeps
        them as the next step's inputs. tokens: None to take those that the last step chose, at the positions after
        its."""

    def samples(self, draw: Draw) -> bool:
        """Return whether `sample` takes these parameters."""

    def verify(self, tokens: torch.Tensor, positions: torch.Tensor, pages: torch.Tensor, choose: bool) -> Any:
        """Start a step of 1 + K consecutive tokens per slot, int [users, 1 + K]. A first position of -1 skips a
        slot. It yields logits, or with `choose` the likeliest token after each."""

    def draft(
        self, decided: Sequence[Sequence[int]], starts: Sequence[int], pages: torch.Tensor, length: int
    ) -> list[list[int]]:
        """Return `length` drafts per slot by the model that drafts. decided: each slot's tokens from position `starts`
        on: the last verification's first input and what it decided; an empty one skips the slot. Raises ValueError
        without such a model."""

    def start_read(self, step: Any) -> tuple[Any, list]:
        """Start to copy a step's result to the host. Returns what `read` and `read_tokens` take in the step's place,
        and ttnn events that pass when it is there."""

    def read(self, step: Any) -> torch.Tensor:
        """Wait for a step and return its logits, float32 [users, tokens, vocab]."""

    def read_tokens(self, step: Any) -> torch.Tensor:
        """Wait for a step and return the tokens that it chose, int64 [users, tokens]."""

    def warm_up_prefill(self) -> None:
        """Compile what prompts of any length need."""

    def warm_up_decode(self, sampling: bool) -> None:
        """Run each kind of decode step once: the first run compiles it, the second records its trace. sampling: also
        those that choose tokens."""
