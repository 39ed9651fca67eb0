# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation in steps that verify several tokens: which outputs must pass for a layer's guess to be
taken.

A pair of chips goes on with one guess per user, so all nodes of a step are decided together:
- `every node`: each node passes by itself;
- `joint`: ||guess - exact|| < threshold ||exact|| over all nodes and heads at once;
- `likeliest path`: the same over the nodes of the likeliest path alone; the others ride along;
- `each node` decides by itself, which no pair of chips can do: what the other rules would have at best.
The guess of a node reads the prefix's first S and last tokens, and all of the step's own tokens that the node sees.
"""

from __future__ import annotations

import torch

from models.llama31_8b.reference.alspec.acceptance import TREE_RULES, check_threshold
from models.llama31_8b.reference.alspec.counters import SpeculationCounters
from models.llama31_8b.reference.alspec.policies import AttentionPolicy
from models.llama31_8b.reference.model.attention import ManyQueries, Segments
from models.llama31_8b.reference.model.step import DecodeStep, GuessRange

from .forward import weigh

RULES = (*TREE_RULES, "each node")


class StepSpeculation(AttentionPolicy):
    """Speculation of one user's steps of `nodes` tokens under a rule.

    A forward over a text without a tree is cut into steps of `nodes` tokens, each a chain; one over a tree is one step.
    path: the nodes that `likeliest path` judges, of a tree; all of a chain. passed: a tensor per forward and layer,
    bool [steps, nodes], whether each would pass by itself. Raises ValueError for an unknown rule.
    """

    name = "step speculation"
    needs_scores = True
    statistics: SpeculationCounters

    def __init__(
        self,
        threshold: float,
        guess_range: GuessRange,
        nodes: int,
        rule: str,
        path: list[int] | None = None,
    ) -> None:
        super().__init__(guess_range)
        if rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
        self.threshold, self.nodes, self.rule, self.path = check_threshold(threshold), nodes, rule, path
        self.statistics = SpeculationCounters()
        self.passed: list[torch.Tensor] = []

    def begin_step(self, step: DecodeStep, layers: int) -> None:
        """Raises ValueError for a text that its steps do not fill, and for a tree of another size."""
        if step.tokens % self.nodes or (step.tree is not None and step.tokens != self.nodes):
            raise ValueError(f"{step.tokens} tokens are no steps of {self.nodes}")
        roots = step.cached[0, :: self.nodes]
        self._tails = self.guess_range.tail_start(roots).repeat_interleave(self.nodes)
        self._eligible = (roots >= self.guess_range.bypass_below).repeat_interleave(self.nodes)
        self._accepted = self.statistics.begin_step(layers, step.users, self._eligible[None])

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        if not isinstance(segments, ManyQueries):
            raise ValueError("steps of several tokens are of two and more")
        tokens, scores = segments.tokens, segments.scores
        keys = torch.arange(scores.shape[-1])
        read = (keys < self.guess_range.first) | (keys >= self._tails[tokens, None])
        weights = torch.softmax(scores.masked_fill(~segments.visible, float("-inf")), dim=-1)
        chosen = weights * (read & segments.visible)
        exact = weigh(weights, segments.values)
        guess = weigh(chosen / chosen.sum(-1, keepdim=True), segments.values)
        eligible = self._eligible[tokens]
        accepted = self._decide(guess, exact) & eligible
        self._accepted[layer, 0, tokens] = accepted
        return torch.where(accepted[:, None], guess, exact)

    def _decide(self, guess: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
        """Return bool [queries], equal within a step but for the rule `each node`."""
        apart, size = ((part**2).sum(1).unflatten(0, (-1, self.nodes)) for part in (guess - exact, exact))
        square = self.threshold**2
        alone = apart < square * size  # [steps, nodes]
        self.passed.append(alone)
        if self.rule == "each node":
            return alone.flatten()
        if self.rule == "every node":
            step = alone.all(1)
        else:
            counted = slice(None) if self.rule == "joint" or self.path is None else self.path
            step = apart[:, counted].sum(1) < square * size[:, counted].sum(1)
        return step.repeat_interleave(self.nodes)
