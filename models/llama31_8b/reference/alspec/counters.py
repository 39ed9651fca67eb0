# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How often attention-level speculation hit: counts of the acceptance rule's decisions (ALSpec paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch


@dataclass
class StepDecisions:
    """Decisions of one decode step.

    accepted: bool [layers, batch, T]; verified: bool [batch, T], False where too few tokens were cached; counted: bool
    [batch, T], False for queries dropped with `keep_queries`; users: the cache row of each batch row. root_alone: bool
    [layers, batch], how the root of each user's token tree would have been decided without the tree; None in a step
    without trees.
    """

    users: list[int]
    accepted: torch.Tensor
    verified: torch.Tensor
    counted: torch.Tensor
    root_alone: torch.Tensor | None = None


class SpeculationCounters:
    """Hits, misses and bypassed positions, kept per layer, per decoded token and per user.

    One count is one (layer, user, query token). Recording costs one small tensor write per layer; sums are made when
    asked for. Bypassed positions (fewer than two chunks cached) are neither hits nor misses.
    """

    def __init__(self) -> None:
        self.steps: list[StepDecisions] = []

    def begin_step(self, layers: int, users: Sequence[int], verified: torch.Tensor) -> torch.Tensor:
        """Start a step and return its `accepted` buffer, bool [layers, batch, T], for the policy to fill."""
        accepted = torch.zeros((layers, *verified.shape), dtype=torch.bool)
        self.steps.append(StepDecisions(list(users), accepted, verified, torch.ones_like(verified)))
        return accepted

    def begin_tree(self) -> torch.Tensor:
        """Make the last step one of token trees: its T tokens are a tree's nodes, decided together. Return its
        `root_alone` buffer, bool [layers, batch], for the policy to fill."""
        step = self.steps[-1]
        step.root_alone = torch.zeros(step.accepted.shape[:2], dtype=torch.bool)
        return step.root_alone

    def keep_queries(self, row: int, queries: Sequence[int]) -> None:
        """Count only these queries of a batch row of the last step: the draft tokens that were accepted."""
        counted = self.steps[-1].counted
        counted[row] = False
        counted[row, list(queries)] = True

    @property
    def step_count(self) -> int:
        """Decode steps recorded."""
        return len(self.steps)

    def forget_after(self, count: int) -> None:
        """Keep the first `count` steps only."""
        del self.steps[count:]

    def reset(self) -> None:
        """Forget everything recorded."""
        self.steps.clear()

    def totals_per_layer(self) -> torch.Tensor:
        """Return int64 [layers, 3]: hits, misses, bypassed; [0, 3] when nothing was recorded."""
        if not self.steps:
            return torch.zeros((0, 3), dtype=torch.int64)
        return sum(_totals(step) for step in self.steps)

    def decisions_per_token(self, user: int = 0) -> list[list[bool] | None]:
        """Return which layers accepted, for each counted token of a user in order; None where bypassed."""
        decisions: list[list[bool] | None] = []
        for step in self.steps:
            for row in (index for index, owner in enumerate(step.users) if owner == user):
                layers = step.accepted[:, row].T.tolist()
                verified, counted = step.verified[row].tolist(), step.counted[row].tolist()
                decisions += [mine if ok else None for mine, ok, count in zip(layers, verified, counted) if count]
        return decisions

    @property
    def hits(self) -> int:
        return int(self.totals_per_layer()[:, 0].sum())

    @property
    def misses(self) -> int:
        return int(self.totals_per_layer()[:, 1].sum())

    @property
    def bypassed(self) -> int:
        """Bypassed (layer, user, token) triples; divide by the layer count for positions."""
        return int(self.totals_per_layer()[:, 2].sum())

    @property
    def hit_rate(self) -> float | None:
        """Hits over hits + misses, in [0, 1]; None when nothing was verified."""
        hits, misses, _ = self.totals_per_layer().sum(0).tolist()
        return hits / (hits + misses) if hits + misses else None

    @property
    def hit_rate_per_step(self) -> float | None:
        """Hit rate with each decision of a tree step counted once, however many of its tokens were kept, in [0, 1];
        None when nothing was verified."""
        return self._rate_of_roots(step.accepted[:, :, 0] for step in self.steps)

    @property
    def hit_rate_of_roots_alone(self) -> float | None:
        """Hit rate that the first tokens of the steps would have had without the trees after them, in [0, 1]; None when
        nothing was verified."""
        return self._rate_of_roots(
            step.accepted[:, :, 0] if step.root_alone is None else step.root_alone for step in self.steps
        )

    def _rate_of_roots(self, accepted: Iterable[torch.Tensor]) -> float | None:
        hits = verified = 0
        for step, roots in zip(self.steps, accepted):
            hits += int((roots & step.verified[:, 0]).sum())
            verified += len(roots) * int(step.verified[:, 0].sum())
        return hits / verified if verified else None

    @property
    def hit_rate_per_layer(self) -> list[float | None]:
        """Hit rate of each layer, None where nothing was verified."""
        return [h / (h + m) if h + m else None for h, m, _ in self.totals_per_layer().tolist()]

    @property
    def bypassed_positions(self) -> int:
        """Decoded tokens, over all users, for which no layer speculated."""
        return sum(int((~step.verified & step.counted).sum()) for step in self.steps)


def _totals(step: StepDecisions) -> torch.Tensor:
    """Return int64 [layers, 3]: hits, misses, bypassed."""
    verified = step.verified & step.counted
    hits = (step.accepted & verified).sum((1, 2))
    bypassed = (~step.verified & step.counted).sum().expand_as(hits)
    return torch.stack([hits, verified.sum() - hits, bypassed], dim=1)
