# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Pearson's correlation and bits of bfloat16 numbers, for tests and for what they run in a worker."""

from __future__ import annotations

import math


def correlation(got, expected) -> float:
    """Return the correlation of all elements of two torch tensors, in float64; NaN where one of them is constant."""
    a, b = got.double().flatten(), expected.double().flatten()
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / (a.norm() * b.norm()))


def agreement(got, expected) -> float:
    """The correlation; 1 for equal tensors, constant ones too, and 0 where there is none."""
    if got.double().flatten().equal(expected.double().flatten()):
        return 1.0
    found = correlation(got, expected)
    return 0.0 if math.isnan(found) else found


def set_bits(values, place: tuple[int, ...], bits: int) -> None:
    """Write the bits of a bfloat16 number at a place of a contiguous tensor: torch would make one NaN of many."""
    import torch

    values.view(torch.int16)[place] = bits - (bits >> 15 << 16)
