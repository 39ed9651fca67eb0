# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Hits, misses and bypassed positions as the chip pairs counted them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LayerCounters:
    """One layer's decisions, counted per decode step and user; skipped users are not counted."""

    hits: int
    misses: int
    bypassed: int

    @property
    def hit_rate(self) -> float | None:
        """Hits as a share of verified guesses; None if nothing was verified."""
        verified = self.hits + self.misses
        return self.hits / verified if verified else None


@dataclass(frozen=True)
class ChipCounters:
    """Counters since `reset`, a results.AttentionStatistics.

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
        layers = (
            LayerCounters(*(sum(getattr(count, name) for count in counts) for name in ("hits", "misses", "bypassed")))
            for counts in zip(*(part.layers for part in parts), strict=True)
        )
        first, second = (sum(sent) for sent in zip(*(part.sent for part in parts), strict=True))
        failures = tuple(failure for part in parts for failure in part.failures)
        return cls(tuple(layers), sum(part.ties for part in parts), (first, second), failures)

    @property
    def hits(self) -> int:
        return sum(layer.hits for layer in self.layers)

    @property
    def misses(self) -> int:
        return sum(layer.misses for layer in self.layers)

    @property
    def bypassed(self) -> int:
        return sum(layer.bypassed for layer in self.layers)

    @property
    def bypassed_positions(self) -> int:
        """Tokens, over all users, decoded without speculation."""
        return self.layers[0].bypassed

    @property
    def hit_rate(self) -> float | None:
        """Hit rate over all layers; None if nothing was verified."""
        return LayerCounters(self.hits, self.misses, self.bypassed).hit_rate

    @property
    def hit_rate_per_step(self) -> float | None:
        """Hit rate of steps, over token trees too: chips count a user's tree once per layer."""
        return self.hit_rate

    @property
    def hit_rate_of_roots_alone(self) -> float | None:
        """Always None: what a tree's root alone would have hit is not measured on chips."""
        return None

    @property
    def exchange(self) -> dict[str, object]:
        """Return what the rows exchanged, for a report."""
        return {"sent_by_row": list(self.sent), "ties": self.ties, "failures": list(self.failures)}

    @property
    def hit_rate_per_layer(self) -> list[float | None]:
        return [layer.hit_rate for layer in self.layers]
