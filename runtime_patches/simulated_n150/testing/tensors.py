# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors in tests: how well two agree, and how host tensors reach a simulated mesh, in a worker (see worker.py)."""

from __future__ import annotations

import math


def correlation(got, expected) -> float:
    """Return Pearson's correlation of all elements of two torch tensors, in float64; NaN where one is constant."""
    a, b = got.double().flatten(), expected.double().flatten()
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / (a.norm() * b.norm()))


def agreement(got, expected) -> float:
    """Return the correlation; 1 for equal tensors, constant ones too, and 0 where there is none."""
    if got.double().flatten().equal(expected.double().flatten()):
        return 1.0
    found = correlation(got, expected)
    return 0.0 if math.isnan(found) else found


def on_chips(mesh, values, dtype, layout, mapper, memory=None):
    """Return `values` as ttnn.from_torch with a mapper does, but converted by the host.

    ttnn would have every chip convert them, by programs that take the simulator longer than most tests.
    """
    import ttnn

    host = ttnn.from_torch(values, dtype=dtype, layout=layout, mesh_mapper=mapper)
    return ttnn.to_device(host, mesh, memory_config=memory or ttnn.DRAM_MEMORY_CONFIG)
