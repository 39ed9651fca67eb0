# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A request: how tokens are drawn, what ends a text, and what is checked before any work. Without torch, which takes a
second to import: options are checked before it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from ..config import ContextLengthError, LlamaConfig


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen from the target's logits.

    temperature: 0 is greedy (arg-max, lowest id among equals); otherwise logits are divided by it.
    top_k: keep the k largest logits; 0 keeps all.
    top_p: keep the smallest set of most probable tokens whose mass reaches top_p; 1 keeps all.
    seed: user u draws from its own generator seeded with `seed + u`, so a user's tokens never depend on its
        neighbours in the batch.

    Warpers apply in the order temperature, top-k, top-p (as in Hugging Face transformers). Among equal logits
    lower ids are kept first, so exactly k tokens survive top-k.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0.0):
            raise ValueError(f"temperature must be finite and at least 0, got {self.temperature}")
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, int) or self.top_k < 0:
            raise ValueError(f"top_k must be an integer of at least 0 (0 = off), got {self.top_k!r}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be an integer from 0 to 2**63 - 1, got {self.seed!r}")

    @property
    def greedy(self) -> bool:
        """True when the choice is the arg-max."""
        return self.temperature == 0.0


# on_token(user, token_id); returning True ends that user's text with finish reason "callback".
TokenCallback = Callable[[int, int], bool | None]


@dataclass
class SequenceState:
    """The text of one user as it grows: `push` tokens until `finish_reason` is set. room: new tokens the context can
    take, at least 1."""

    user: int
    max_new_tokens: int
    room: int
    eos: Collection[int]
    on_token: TokenCallback | None
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None

    def push(self, token: int) -> bool:
        """Append a token and call back. Return True when the text goes on."""
        self.token_ids.append(token)
        ended = bool(self.on_token(self.user, token)) if self.on_token is not None else False
        if token in self.eos:
            self.finish_reason = "eos"
        elif ended:
            self.finish_reason = "callback"
        elif len(self.token_ids) >= self.max_new_tokens:
            self.finish_reason = "length"
        elif len(self.token_ids) >= self.room:
            self.finish_reason = "context"
        return self.finish_reason is None

    def push_all(self, tokens: Sequence[int]) -> list[int]:
        """Push tokens until the text ends; return those that were taken."""
        for index, token in enumerate(tokens):
            if not self.push(token):
                return list(tokens[: index + 1])
        return list(tokens)


def open_sequences(
    config: LlamaConfig,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    eos_token_ids: Collection[int] | None = None,
    on_token: TokenCallback | None = None,
    context_limit: int | None = None,
) -> list[SequenceState]:
    """Check a request and return one sequence per prompt. eos_token_ids None means the config's; () means none.

    Raises ValueError for no prompts, an empty one or max_new_tokens < 1, and ContextLengthError for a prompt
    that leaves no room for a new token within context_limit (default: the model's context).
    """
    limit = config.max_position_embeddings if context_limit is None else context_limit
    if not prompts:
        raise ValueError("no prompts")
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be an integer of at least 1, got {max_new_tokens!r}")
    eos = frozenset(config.eos_token_ids if eos_token_ids is None else eos_token_ids)
    sequences = []
    for user, prompt in enumerate(prompts):
        if not len(prompt):
            raise ValueError(f"the prompt of user {user} is empty")
        # The last token of a full context is never written back: a prompt of `limit` tokens yields one.
        room = limit - len(prompt) + 1
        if room < 1:
            raise ContextLengthError(f"the prompt of user {user} has {len(prompt)} tokens; the limit is {limit}")
        sequences.append(SequenceState(user, max_new_tokens, room, eos, on_token))
    return sequences
