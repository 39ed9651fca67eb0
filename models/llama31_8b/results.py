# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a generation returns, on any backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass
class TokenSpeculationMetrics:
    """Counts over drafts, by vLLM's names and definitions, so that its benchmarks can read them. One draft is one
    user's drafted chain or tree in one target step.

    num_draft_tokens counts all drafted nodes (a tree proposes more than it can accept). Acceptance is counted
    as the verifier decides it, before an end-of-text token inside a block cuts the output short. The timings
    are sums over steps: draft_seconds, target_seconds (target pass, verification and commit), and of the drafting
    calibration_seconds, exact passes of a draft model over decided tokens.
    """

    #: Drafts by how many of their tokens were accepted, and the levels of the deepest.
    accepted: Counter[int] = field(default_factory=Counter)
    levels: int = 0
    num_draft_tokens: int = 0
    #: User-steps of the target, with and without a draft, and the tokens that came out of them.
    num_target_steps: int = 0
    num_output_tokens: int = 0
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    calibration_seconds: float = 0.0

    def record_draft(self, depth: int, nodes: int, accepted: int) -> None:
        """Count one draft of `nodes` tokens over `depth` levels, of which `accepted` tokens were accepted."""
        self.accepted[accepted] += 1
        self.levels = max(self.levels, depth)
        self.num_draft_tokens += nodes

    def record_step(self, users: int, tokens: int, draft_seconds: float, target_seconds: float) -> None:
        """Count one step of the target for so many users, and the tokens and seconds of all of them."""
        self.num_target_steps += users
        self.num_output_tokens += tokens
        self.draft_seconds += draft_seconds
        self.target_seconds += target_seconds

    @classmethod
    def merged(cls, parts: Sequence[TokenSpeculationMetrics]) -> TokenSpeculationMetrics:
        """Return the counts of several runs as those of one."""
        total = cls()
        for part in parts:
            for name, value in vars(part).items():
                setattr(total, name, getattr(total, name) + value)
        total.levels = max(part.levels for part in parts)
        return total

    @property
    def num_drafts(self) -> int:
        return self.accepted.total()

    @property
    def num_accepted_tokens(self) -> int:
        return sum(tokens * drafts for tokens, drafts in self.accepted.items())

    @property
    def num_accepted_tokens_per_pos(self) -> list[int]:
        """Number of drafts accepted at least this far, by position."""
        return [sum(self.acceptance_histogram[position + 1 :]) for position in range(self.levels)]

    @property
    def mean_acceptance_length(self) -> float | None:
        """1 + accepted tokens per draft: the bonus token is counted. None without drafts."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else None

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens. None without drafts."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def acceptance_histogram(self) -> list[int]:
        """Number of drafts of which exactly j tokens were accepted, by j."""
        return [self.accepted[j] for j in range(self.levels + 1)] if self.num_drafts else []

    @property
    def tokens_per_target_step(self) -> float | None:
        """Output tokens over user-steps of the target, steps without a draft included."""
        return self.num_output_tokens / self.num_target_steps if self.num_target_steps else None

    def to_dict(self) -> dict[str, Any]:
        """Return what --json shows."""
        shown = "num_drafts num_draft_tokens num_accepted_tokens num_accepted_tokens_per_pos mean_acceptance_length"
        shown += " draft_acceptance_rate acceptance_histogram num_target_steps num_output_tokens tokens_per_target_step"
        shown += " draft_seconds target_seconds calibration_seconds"
        return {name: getattr(self, name) for name in shown.split()}


class AttentionStatistics(ABC):
    """Counts of attention-level speculation. One count is one (layer, user, token). Rates are in [0, 1], None where
    nothing was verified."""

    @abstractmethod
    def counts_per_layer(self) -> list[list[int]]:
        """Return hits, misses and bypassed guesses, those that too few cached tokens left unverified, of each layer."""

    @property
    def hits(self) -> int:
        return self._sums()[0]

    @property
    def misses(self) -> int:
        return self._sums()[1]

    @property
    def bypassed(self) -> int:
        return self._sums()[2]

    @property
    def bypassed_positions(self) -> int:
        """Tokens, over all users, for which no layer speculated."""
        return next((bypassed for *_, bypassed in self.counts_per_layer()), 0)

    @property
    def hit_rate(self) -> float | None:
        return _rate(*self._sums())

    @property
    def hit_rate_per_layer(self) -> list[float | None]:
        return [_rate(*counts) for counts in self.counts_per_layer()]

    def _sums(self) -> list[int]:
        return [sum(counts) for counts in zip(*self.counts_per_layer(), strict=True)] or [0, 0, 0]


def _rate(hits: int, misses: int, _: int) -> float | None:
    return hits / (hits + misses) if hits + misses else None


@dataclass(frozen=True)
class GenerationResult:
    """Generated ids and timings.

    token_ids: new tokens of each user, the one that ended the text included. finish_reason of each user: "eos",
    "length" (max_new_tokens), "context" (the model's context is full) or "callback". prefill_seconds ends with each
    user's first token, no decode token: decode_tokens counts the rest. statistics: the attention policy's,
    None for policies without speculation. speculation: of drafts, None without a drafter; prefill_seconds then includes
    the draft model's. texts: of the new tokens, where a tokenizer is at hand. warm_up_tokens, warm_up_seconds: of the
    decoded ones, those of steps that compiled programs or recorded a trace.
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
    warm_up_tokens: int = 0
    warm_up_seconds: float = 0.0

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens of all users per second."""
        return self.prefill_tokens / self.prefill_seconds

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Decoded tokens of all users per second; None when every text ended with its first token."""
        return self.decode_tokens / self.decode_seconds if self.decode_tokens else None


class LayerCounters(NamedTuple):
    """One layer's decisions, counted per decode step and user; skipped users are not counted."""

    hits: int
    misses: int
    bypassed: int


@dataclass(frozen=True)
class ChipCounters(AttentionStatistics):
    """Counters since `reset`.

    ties: exchanges with equal priorities, where the first row sent. sent: layers whose residual the first and the
    second row sent. failures: chips that gave up on their peer.
    """

    layers: tuple[LayerCounters, ...]
    ties: int
    sent: tuple[int, int]
    failures: tuple[str, ...]

    @classmethod
    def merged(cls, parts: Sequence[ChipCounters]) -> ChipCounters:
        """Add up several readings, at least one, from one model."""
        by_layer = zip(*(part.layers for part in parts), strict=True)
        layers = (LayerCounters(*map(sum, zip(*counts, strict=True))) for counts in by_layer)
        first, second = (sum(sent) for sent in zip(*(part.sent for part in parts), strict=True))
        failures = tuple(failure for part in parts for failure in part.failures)
        return cls(tuple(layers), sum(part.ties for part in parts), (first, second), failures)

    def counts_per_layer(self) -> list[list[int]]:
        return [list(layer) for layer in self.layers]

    @property
    def exchange(self) -> dict[str, object]:
        """Return what the rows exchanged, for a report."""
        return {"sent_by_row": list(self.sent), "ties": self.ties, "failures": list(self.failures)}
