# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals by resampling questions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def interval(values: Sequence[float], level: float = 0.95, draws: int = 10000, seed: int = 0) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean: `draws` samples with replacement.

    For a difference of two policies give each question's difference: the questions are the same, so they are paired.
    Raises ValueError for no values and for a level outside (0, 1).
    """
    if not len(values):
        raise ValueError("no values to resample")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    data = np.asarray(values, dtype=float)
    picks = np.random.default_rng(seed).integers(0, len(data), (draws, len(data)))
    means = data[picks].mean(axis=1)
    return float(np.quantile(means, (1 - level) / 2)), float(np.quantile(means, (1 + level) / 2))
