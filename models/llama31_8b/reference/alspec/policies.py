# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The attention policies of decode steps: exact, sink, static and attention-level speculation (ALSpec paper, sections
2 and 3.2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Iterable

import torch

from ..model.attention import Segments
from ..model.step import DecodeStep, Predictor, check_positive
from .acceptance import accept_guess, check_threshold
from .statistics import AttentionSpeculationStatistics


def both_ends(chunk_size: int, tail_alignment: int = 32) -> Predictor:
    """The default, the paper's but for whole tiles: at least S keys at either end. Raises ValueError when S is not a
    positive multiple of the alignment."""
    check_positive("chunk_size", chunk_size)
    check_positive("tail_alignment", tail_alignment)
    if chunk_size % tail_alignment:
        raise ValueError(f"chunk_size {chunk_size} is not a multiple of tail_alignment {tail_alignment}")
    return Predictor(chunk_size, chunk_size, tail_alignment, whole_tail=True)


class AttentionPolicy(ABC):
    """Chooses the attention output of decode steps. Prefill is exact under every policy, as in the paper.

    chunk_size: S, keys that the guess reads at either end, or a Predictor that says which it reads. tail_alignment:
    where the tail may begin: with 32, as the device kernel reads, it holds S to S + 31 keys; 1 gives the paper's
    definition. Raises ValueError when S is not a positive multiple of the alignment, and for an alignment beside a
    Predictor, which has its own.
    """

    name: str
    statistics: AttentionSpeculationStatistics | None = None

    def __init__(self, chunk_size: int | Predictor = 128, tail_alignment: int = 32) -> None:
        if not isinstance(chunk_size, Predictor):
            self.predictor = both_ends(chunk_size, tail_alignment)
        elif tail_alignment in (32, chunk_size.alignment):
            self.predictor = chunk_size
        else:
            raise ValueError(f"tail_alignment {tail_alignment} beside {chunk_size}, which has its own")

    def begin_step(self, step: DecodeStep, layers: int) -> None:
        """Called once before the layers of each decode step."""

    @abstractmethod
    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        """The attention output [queries, n_heads * head_dim] of one layer for these queries."""


class ExactAttention(AttentionPolicy):
    """Full attention, with the speculation left out of the same segmented computation."""

    name = "exact"

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        return segments.exact()


class SinkAttention(AttentionPolicy):
    """Always the guess: attention over the first and the last keys alone, in every layer."""

    name = "sink"

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        return segments.guess()


class StaticAttention(AttentionPolicy):
    """The guess on a fixed set of layers, exact attention on the others (paper, section 2).

    Raises ValueError for negative layers here, and for layers the model lacks at the first step.
    """

    name = "static"

    def __init__(self, chunk_size: int | Predictor = 128, layers: Iterable[int] = (), tail_alignment: int = 32) -> None:
        super().__init__(chunk_size, tail_alignment)
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
    """Attention-level speculation: the guess where it passes verification, the exact result elsewhere.

    threshold: lambda of section 3.2. Each (user, query token) decides for itself in each layer. Queries with
    fewer cached tokens than the guess reads (2S), their own included, are bypassed: exact, and counted apart.
    """

    name = "alspec"
    statistics: AttentionSpeculationStatistics

    def __init__(self, threshold: float = 0.10, chunk_size: int | Predictor = 128, tail_alignment: int = 32) -> None:
        super().__init__(chunk_size, tail_alignment)
        self.threshold = check_threshold(threshold)
        self.statistics = AttentionSpeculationStatistics()

    def begin_step(self, step: DecodeStep, layers: int) -> None:
        self._accepted = self.statistics.begin_step(layers, step.users, step.eligible)

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        exact = segments.exact()
        eligible = segments.eligible
        if eligible is False:
            return exact
        guess = segments.guess()
        accepted = accept_guess(guess, exact, self.threshold)
        if eligible is not True:
            accepted &= eligible
        queries = segments.tokens.stop - segments.tokens.start
        self._accepted[layer, segments.rows, segments.tokens] = accepted.view(-1, queries)
        return torch.where(accepted[:, None], guess, exact)
