# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a generation returns, on any backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from .generation.request import SequenceState
    from .spec_decode.metrics import TokenSpeculationMetrics


class AttentionStatistics(Protocol):
    """Counts of attention-level speculation. One count is one (layer, user, token)."""

    @property
    def hits(self) -> int: ...

    @property
    def misses(self) -> int: ...

    @property
    def bypassed(self) -> int: ...

    @property
    def hit_rate(self) -> float | None: ...

    @property
    def hit_rate_per_layer(self) -> list[float | None]: ...

    @property
    def bypassed_positions(self) -> int: ...


@dataclass(frozen=True)
class GenerationResult:
    """Generated ids and timings.

    token_ids: new tokens of each user, the one that ended the text included. finish_reason of each user: "eos", "stop"
    (a stop id), "length" (max_new_tokens), "context" (the model's context is full) or "callback". prefill_seconds ends
    with each user's first token, no decode token: decode_tokens counts the rest. statistics: the attention policy's,
    None for policies without speculation. speculation: of drafts, None without a drafter; prefill_seconds then includes
    the draft model's. texts: of the new tokens, where a tokenizer is at hand.
    """

    token_ids: list[list[int]]
    finish_reason: list[str]
    prefill_tokens: int
    prefill_seconds: float
    decode_tokens: int
    decode_seconds: float
    statistics: AttentionStatistics | None = None
    speculation: TokenSpeculationMetrics | None = None
    texts: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        sequences: Sequence[SequenceState],
        prompts: Sequence[Sequence[int]],
        times: tuple[float, float, float],
        statistics: AttentionStatistics | None = None,
        speculation: TokenSpeculationMetrics | None = None,
    ) -> GenerationResult:
        """Make a result of ended sequences. times: start, end of prefill and end, in seconds. statistics: the attention
        policy's, None where nothing speculated. speculation: of drafts, None without a drafter."""
        start, prefilled, ended = times
        return cls(
            token_ids=[sequence.token_ids for sequence in sequences],
            finish_reason=[cast(str, sequence.finish_reason) for sequence in sequences],  # they have ended
            prefill_tokens=sum(map(len, prompts)),
            prefill_seconds=prefilled - start,
            decode_tokens=sum(len(sequence.token_ids) for sequence in sequences) - len(sequences),
            decode_seconds=ended - prefilled,
            statistics=statistics,
            speculation=speculation,
        )

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens of all users per second."""
        return self.prefill_tokens / self.prefill_seconds

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Decoded tokens of all users per second; None when every text ended with its first token."""
        return self.decode_tokens / self.decode_seconds if self.decode_tokens else None
