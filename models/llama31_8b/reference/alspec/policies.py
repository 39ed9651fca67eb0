# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The attention policies of decode steps: exact, sink, static and attention-level speculation (ALSpec paper, sections
2 and 3.2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch

from ...config import BUDGET, DEFAULT_PREDICTOR
from ..model.attention import Segments
from ..model.step import QUERY_BLOCK, DecodeStep, GuessRange
from .acceptance import SpeculationCounters, accept_guess, accept_tree_guess, check_threshold
from .budget import BudgetGuess


class AttentionPolicy(ABC):
    """Chooses the attention output of decode steps. Prefill is exact under every policy, as in the paper.

    chunk_size: S, keys that the guess reads at either end, or a GuessRange that says which it reads. Raises ValueError
    when S is not a positive multiple of 32, and for a budget without verified steps.
    """

    name: str
    statistics: SpeculationCounters | None = None
    verifies = False  # only verified attention has exact passes whose weights a budget can go by

    def __init__(self, chunk_size: int | GuessRange = 128) -> None:
        self.guess_range = GuessRange.of(chunk_size)
        if self.guess_range.budget is not None and not self.verifies:
            raise ValueError(f"{self.name} attention has no verified steps for a budget to go by: {self.guess_range}")

    def reset(self) -> None:
        """Forget what steps of earlier texts left, and count anew; called before each generation."""

    def begin_step(self, step: DecodeStep, layers: int) -> None:
        """Prepare a decode step; called once before its layers."""

    @abstractmethod
    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        """Return the attention output [queries, n_heads * head_dim] of one layer for these queries."""


class ExactAttention(AttentionPolicy):
    """Full attention, by the same segmented computation without speculation."""

    name = "exact"

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        return segments.exact()


class SinkAttention(AttentionPolicy):
    """The guess in every layer: attention over the first and the last keys alone."""

    name = "sink"

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        return segments.guess()


class StaticAttention(AttentionPolicy):
    """The guess on a fixed set of layers, exact attention on the others (paper, section 2).

    Raises ValueError for negative layers here, and for layers the model lacks at the first step.
    """

    name = "static"

    def __init__(self, chunk_size: int | GuessRange = 128, layers: Iterable[int] = ()) -> None:
        super().__init__(chunk_size)
        self.layers = frozenset(int(layer) for layer in layers)
        if any(layer < 0 for layer in self.layers):
            raise ValueError(f"layers must be 0 or more, got {sorted(self.layers)}")

    def begin_step(self, step: DecodeStep, layers: int) -> None:
        beyond = sorted(layer for layer in self.layers if layer >= layers)
        if beyond:
            raise ValueError(f"static attention names layers {beyond} of a model with {layers} layers")

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        return segments.guess() if layer in self.layers else segments.exact()


class ALSpecAttention(AttentionPolicy):
    """Attention-level speculation: the guess where it is accepted, the exact result elsewhere.

    threshold: lambda of section 3.2. Each (user, query token) is decided by itself in each layer, but the nodes of a
    token tree together: one chip goes on with a user's step. Queries with fewer cached tokens than 2S, their own
    included, are bypassed: exact, and counted apart; a tree is where its root is.
    """

    name = "alspec"
    verifies = True
    statistics: SpeculationCounters

    def __init__(self, threshold: float = 0.10, chunk_size: int | GuessRange = 128) -> None:
        super().__init__(chunk_size)
        self.threshold = check_threshold(threshold)
        self.statistics = SpeculationCounters()
        self.by_budget = None if self.guess_range.budget is None else BudgetGuess(self.guess_range)

    def reset(self) -> None:
        self.statistics = SpeculationCounters()
        if self.by_budget is not None:
            self.by_budget.reset()

    def begin_step(self, step: DecodeStep, layers: int) -> None:
        """Raises ValueError for a tree that is written in several steps or has more than QUERY_BLOCK nodes: it is
        decided as a whole."""
        whole = step.tokens <= QUERY_BLOCK and not step.earlier
        if step.tree is not None and not whole:
            raise ValueError(
                f"attention-level speculation decides a tree of at most {QUERY_BLOCK} nodes in one step, got "
                f"{step.tokens} tokens after {step.earlier} earlier nodes"
            )
        if self.by_budget is not None:
            self.by_budget.begin_step(step)
        self._step = step
        self._accepted = self.statistics.begin_step(layers, step.users, step.eligible)

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        exact = segments.exact()
        eligible = segments.eligible
        # The exact pass of a bypassed query leaves its weights too.
        by_budget = None if self.by_budget is None else self.by_budget.guess(layer, segments)
        if eligible is False:
            return exact
        guess = segments.guess() if by_budget is None else by_budget
        if self._step.tree is not None and self._step.tokens > 1:  # a tree of one node is a plain step
            nodes = self._step.nodes(segments.rows.start)
            accepted = torch.full((len(guess),), accept_tree_guess(guess, exact, self.threshold, nodes))
        else:
            accepted = accept_guess(guess, exact, self.threshold)
        if eligible is not True:
            accepted &= eligible
        queries = segments.tokens.stop - segments.tokens.start
        self._accepted[layer, segments.rows, segments.tokens] = accepted.view(-1, queries)
        if self.by_budget is not None:
            self.by_budget.decided(segments, accepted.view(-1, queries))
        return torch.where(accepted[:, None], guess, exact)


def by_name(
    policy: str, chunk_size: int = 128, threshold: float = 0.10, predictor: str | None = None, budget: float = BUDGET
) -> AttentionPolicy:
    """Return a new policy: "exact", or "alspec", whose guess reads by `predictor`: "budget", the default, or "ends".
    budget: of the former alone."""
    if policy == "exact":
        return ExactAttention(chunk_size)
    by_budget = (predictor or DEFAULT_PREDICTOR) == "budget"
    return ALSpecAttention(
        threshold, GuessRange.by_budget(chunk_size, budget) if by_budget else GuessRange.both_ends(chunk_size)
    )
