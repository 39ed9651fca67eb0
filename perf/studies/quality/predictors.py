# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation with guesses that parameters describe, in steps of one token or of several.

A guess reads first and last keys, and with a budget for each key/value head the tiles of 32 between them that had the
most attention weight in earlier exact passes of the layer. The reference says which keys these are and which guesses
are accepted (budget.py, GuessRange, accept_guess). A text goes through many tokens at a time; each token decides by
itself and knows only what a pair of chips would know there.

Symbols: m key/value heads, t query tokens, n cached tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from models.llama31_8b.config import BUDGET, check_budget
from models.llama31_8b.reference.alspec.acceptance import SpeculationCounters, accept_guess, check_threshold
from models.llama31_8b.reference.alspec.budget import DECAY, keys_by_budget, running_averages, tile_masses
from models.llama31_8b.reference.alspec.policies import AttentionPolicy
from models.llama31_8b.reference.model.attention import ManyQueries, Segments
from models.llama31_8b.reference.model.step import DecodeStep, GuessRange


@dataclass(frozen=True)
class Predictor:
    """What a guess reads, and what its chip can know when it chooses.

    Args:
        budget: read tiles, the heaviest first, until this part of the known weight is read; without it the guess reads
            first and last keys alone, and no other parameter but `exact` and `every` says anything.
        own: go by the exact passes of this rank alone, as the chips of a pair must; else by those of every token.
        decay: the part of the past in a moving average over these passes; 0 goes by the last pass alone.
        every: take the guess without verification, but for an exact pass at every so many tokens, whose weights are
            then the known ones. This is what a single chip could do.
        exact: go on with the exact output, so that all such guesses are judged on the same states.
        mean: of a step of several nodes know the mean of their weights, not those of its root alone.

    Raises ValueError for values out of range and for parameters that exclude each other.
    """

    budget: float | None = None
    own: bool = False
    decay: float = 0.0
    every: int | None = None
    exact: bool = False
    mean: bool = False

    def __post_init__(self) -> None:
        if self.budget is not None:
            check_budget(self.budget)
        elif self.own or self.decay or self.mean:
            raise ValueError("own, decay and mean say how a budget is filled: they go with budget=VALUE")
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be at least 0 and below 1, got {self.decay}")
        if self.every is not None and (self.every < 2 or self.own or self.exact):
            raise ValueError(f"every must be at least 2 and goes with neither own nor exact, got {self.every}")

    @classmethod
    def parse(cls, text: str) -> Predictor:
        """Return the predictor that words such as "own decay=0.5 budget=0.98" describe.

        Raises ValueError naming the word that is no parameter.
        """
        kinds = {field.name: str(field.type) for field in fields(cls)}
        known = ", ".join(name if kind == "bool" else f"{name}=VALUE" for name, kind in kinds.items())
        values: dict[str, float | int | bool] = {}
        for word in text.split() or [""]:
            name, equals, value = word.partition("=")
            kind = kinds.get(name, "")
            try:
                if not kind or bool(equals) == (kind == "bool"):
                    raise ValueError
                values[name] = True if kind == "bool" else int(value) if "int" in kind else float(value)
            except ValueError:
                raise ValueError(f"{word!r} is no parameter of a predictor: {known}") from None
        return cls(**values)  # type: ignore[arg-type]

    def guess_range(self, chunk_size: int) -> GuessRange:
        if self.budget is None:
            return GuessRange.both_ends(chunk_size)
        return GuessRange.by_budget(chunk_size, self.budget)


ENDS = Predictor()
OWN_AVERAGE = Predictor(budget=BUDGET, own=True, decay=DECAY)  # what the product knows


class PredictedGuess(AttentionPolicy):
    """Attention-level speculation on the steps of one user, with the guess of a Predictor.

    A forward over a text without a tree is cut into steps of `nodes` tokens, each a chain; one over a token tree is one
    step. All nodes of a step read the cached keys that its root reads, and the step's own keys that they see. By a
    budget a step leaves one pass, its root's or the mean of its nodes', to the rank that sent its root.

    Args:
        threshold: lambda of the ALSpec paper, section 3.2.
        guess_range: what the guess reads; `predictor.guess_range` gives its own.
        nodes: tokens per step, which are decided together, by the norm over all of them.

    Attributes:
        keys_read, slowest_head: sums over (layer, token) pairs that speculate of the keys that a key/value head reads,
            the mean over heads and the largest.
        passed: a tensor per forward and layer, bool [steps, nodes]: whether each node passes by itself.
    """

    name = "predicted guess"
    verifies = True
    statistics: SpeculationCounters

    def __init__(self, threshold: float, guess_range: GuessRange, predictor: Predictor = ENDS, nodes: int = 1) -> None:
        super().__init__(guess_range)
        self.threshold, self.predictor, self.nodes = check_threshold(threshold), predictor, nodes
        self.statistics = SpeculationCounters()
        self.passed: list[torch.Tensor] = []
        self.keys_read = self.slowest_head = torch.zeros((), dtype=torch.float64)
        self._averages: dict[int, torch.Tensor] = {}  # of a layer: [ranks, m, tiles]

    def begin_step(self, step: DecodeStep, layers: int) -> None:
        """Raises ValueError for a text that its steps do not fill, and for a tree of another size."""
        if step.tokens % self.nodes or (step.tree is not None and step.tokens != self.nodes):
            raise ValueError(f"{step.tokens} tokens are no steps of {self.nodes}")
        self._roots = step.cached[0, :: self.nodes].repeat_interleave(self.nodes)
        self._eligible = self._roots >= self.guess_range.bypass_below
        self._accepted = self.statistics.begin_step(layers, step.users, self._eligible[None])
        self._sender = torch.zeros_like(self._roots)  # rank 0 or 1, by token; rank 0 sends layer 0

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        if not isinstance(segments, ManyQueries):
            raise ValueError("guesses are compared on texts of two tokens and more per step")
        tokens, visible = segments.tokens, segments.visible
        weights = torch.softmax(segments.scores.masked_fill(~visible, float("-inf")), dim=-1)
        read = self._read(layer, tokens, weights) & visible
        chosen = weights * read[:, None]
        exact = _weigh(weights, segments.values)
        guess = _weigh(chosen / chosen.sum(-1, keepdim=True), segments.values)
        eligible = self._eligible[tokens]
        accepted = self._decide(guess, exact, self._roots[tokens]) & eligible
        self._accepted[layer, 0, tokens] = accepted
        self._sender[tokens] ^= accepted.long()  # a hit makes the other rank the sender of the next layer
        keys = read.sum(-1).double() * eligible
        self.keys_read = self.keys_read + keys.mean(0).sum()
        self.slowest_head = self.slowest_head + keys.amax(0).sum()
        return exact if self.predictor.exact else torch.where(accepted[:, None], guess, exact)

    def _decide(self, guess: torch.Tensor, exact: torch.Tensor, cached: torch.Tensor) -> torch.Tensor:
        """Return bool [t], equal within a step."""
        if self.predictor.every is not None:
            return cached % self.predictor.every != 0
        alone = accept_guess(guess, exact, self.threshold)
        self.passed.append(alone.unflatten(0, (-1, self.nodes)))
        if self.nodes == 1:
            return alone
        ours, theirs = (part.unflatten(0, (-1, self.nodes)).flatten(1) for part in (guess, exact))
        return accept_guess(ours, theirs, self.threshold).repeat_interleave(self.nodes)

    def _read(self, layer: int, tokens: slice, weights: torch.Tensor) -> torch.Tensor:
        """Return bool [1 or m, t, n]: which keys each query's guess reads, of those it sees."""
        span, roots, keys = self.guess_range, self._roots[tokens], torch.arange(weights.shape[-1])
        if span.budget is None:
            return span.reads(keys, roots[:, None])[None]
        known = self._known(layer, tokens, tile_masses(weights), roots)
        return keys_by_budget(known[None], span, roots[None], keys[None])[0]

    def _known(self, layer: int, tokens: slice, passes: torch.Tensor, cached: torch.Tensor) -> torch.Tensor:
        """Return the weights that each query's guess knows, [m, t, tiles], and keep what the next block needs.

        passes: [m, t, tiles], the weights of the exact passes of these tokens. cached: int64 [t], of their roots.
        """
        how, roots = self.predictor, slice(None, None, self.nodes)
        by_node = passes.unflatten(1, (-1, self.nodes))
        passes = by_node.mean(2) if how.mean else by_node[:, :, 0]
        cached, eligible = cached[roots], self._eligible[tokens][roots]
        ranks, sender = (2, self._sender[tokens][roots]) if how.own else (1, torch.zeros_like(cached))
        before = self._averages.get(layer, passes.new_zeros(ranks, len(passes), 0))
        before = torch.nn.functional.pad(before, (0, passes.shape[-1] - before.shape[-1]))
        known, kept = torch.empty_like(passes), []
        for rank in range(ranks):
            sent = sender == rank
            if how.every is not None:
                sent = (cached % how.every == 0) | ~eligible
            earlier, after = running_averages(before[rank], passes, sent, how.decay)
            known[:, sender == rank] = earlier[:, sender == rank]
            kept.append(after)
        self._averages[layer] = torch.stack(kept)
        return known.repeat_interleave(self.nodes, dim=1)


def _weigh(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return attention's weights [m, heads per m, t, n] times values [m, n, d]: [t, heads * d]."""
    out = torch.bmm(weights.flatten(1, 2), values.float())
    return out.unflatten(1, weights.shape[1:3]).permute(2, 0, 1, 3).flatten(1)
