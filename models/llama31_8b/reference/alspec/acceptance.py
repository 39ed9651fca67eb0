# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The acceptance rule of attention-level speculation (ALSpec paper, section 3.2), its extension to token trees, and
counts of its decisions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...results import AttentionStatistics


def check_threshold(threshold: float) -> float:
    """Return the threshold as a float. Raises ValueError unless it is a number >= 0 (infinity allowed)."""
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not threshold >= 0:
        raise ValueError(f"threshold must be a number >= 0 (inf accepts every guess), got {threshold!r}")
    return float(threshold)


def accept_guess(guess: torch.Tensor, exact: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return which guesses are accepted: ||guess - exact||2 < threshold * ||exact||2, strictly, over all heads of a
    query.

    guess, exact: [queries, n_heads * head_dim]; norms accumulate in float32. Returns bool [queries].
    Threshold 0 accepts nothing, not even a perfect guess; an infinite one accepts everything (the sink
    policy), where the formula alone would say inf * 0 for a zero output.
    """
    if math.isinf(threshold):
        return torch.ones(guess.shape[0], dtype=torch.bool, device=guess.device)
    exact = exact.float()
    distance = torch.linalg.vector_norm(guess.float() - exact, dim=1)
    return distance < torch.linalg.vector_norm(exact, dim=1) * threshold


def accept_tree_guess(guess: torch.Tensor, exact: torch.Tensor, threshold: float, nodes: torch.Tensor) -> bool:
    """Return whether a layer goes on with the guess for all nodes of one user's tree: accept_guess of all nodes' heads
    as one vector. guess, exact: [T, n_heads * head_dim]; nodes: bool [T], without padding."""
    return bool(accept_guess(guess[nodes].view(1, -1), exact[nodes].view(1, -1), threshold))


@dataclass
class StepDecisions:
    """Decisions of one decode step.

    accepted: bool [layers, batch, T]; verified: bool [batch, T], False where too few tokens were cached; counted: bool
    [batch, T], False for queries dropped with `keep_queries`; users: the cache row of each batch row.
    """

    users: list[int]
    accepted: torch.Tensor
    verified: torch.Tensor
    counted: torch.Tensor


class SpeculationCounters(AttentionStatistics):
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

    def keep_queries(self, row: int, queries: Sequence[int]) -> None:
        """Count only these queries of a batch row of the last step: the draft tokens that were accepted."""
        counted = self.steps[-1].counted
        counted[row] = False
        counted[row, list(queries)] = True

    @classmethod
    def merged(cls, parts: Sequence[SpeculationCounters]) -> SpeculationCounters:
        """Return the steps of several texts as those of one."""
        found = cls()
        found.steps = [step for part in parts for step in part.steps]
        return found

    def reset(self) -> None:
        """Forget everything recorded."""
        self.steps.clear()

    def counts_per_layer(self) -> list[list[int]]:
        return sum(_totals(step) for step in self.steps).tolist() if self.steps else []

    def decisions_per_token(self, user: int = 0) -> list[list[bool] | None]:
        """Return which layers accepted, for each counted token of a user in order; None where bypassed."""
        decisions: list[list[bool] | None] = []
        for step in self.steps:
            for row in (index for index, owner in enumerate(step.users) if owner == user):
                layers = step.accepted[:, row].T.tolist()
                verified, counted = step.verified[row].tolist(), step.counted[row].tolist()
                decisions += [mine if ok else None for mine, ok, count in zip(layers, verified, counted) if count]
        return decisions


def _totals(step: StepDecisions) -> torch.Tensor:
    """Return int64 [layers, 3]: hits, misses, bypassed."""
    verified = step.verified & step.counted
    hits = (step.accepted & verified).sum((1, 2))
    bypassed = (~step.verified & step.counted).sum().expand_as(hits)
    return torch.stack([hits, verified.sum() - hits, bypassed], dim=1)
