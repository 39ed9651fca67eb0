# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Perplexity and hit rate of a long text by threshold and chunk size (ALSpec paper, table 1's rows)."""

from __future__ import annotations

from collections.abc import Iterator

from .study import COMPARED, KEYS, Cell, Study

KEY = (*KEYS, "threshold")
VALUES = (*COMPARED, "hit_rate_by_layer", "seconds")


def cells(study: Study) -> Iterator[Cell]:
    """Yield a cell per context, start, chunk size and threshold, contexts in the outer loop: each has one exact
    pass."""
    for place in study.places():
        for threshold in study.settings.thresholds:
            yield _cell(study, *place, threshold)


def _cell(study: Study, context: int, start: int, chunk_size: int, threshold: float) -> Cell:
    def measure() -> dict[str, object]:
        found = study.speculated(context, start, chunk_size, threshold)
        return {**found.columns, "hit_rate_by_layer": join_rates(found.hit_rate_by_layer)}

    return Cell({**study.key(context, start, chunk_size), "threshold": threshold}, measure)


def join_rates(rates: list[float] | None) -> str:
    """Return rates as one CSV cell, three digits each."""
    return " ".join(f"{rate:.3f}" for rate in rates or ())


def split_rates(cell: str) -> list[float]:
    """Return what join_rates joined."""
    return [float(rate) for rate in cell.split()]
