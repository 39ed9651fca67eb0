# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a measured decode step: times that cannot be, or far from the decode model's."""

from __future__ import annotations

from collections.abc import Sequence

from perf.sweep.judge import Kind

# The model is within 10 % of the paper's matmuls it has not seen. A plan of other programs, a newer ttnn: a factor.
FACTOR = 2.0
JUDGED = ("matmul", "norm", "attention")


def impossible(kinds: Sequence[Kind]) -> list[str]:
    """Kinds that took less than reading their bytes from DRAM at the specified rate."""
    return [f"{k.group} {k.kind}: {k.measured:.0f} ns, DRAM {k.floor:.0f}" for k in kinds if k.measured < k.floor]


def out_of_range(kinds: Sequence[Kind]) -> list[str]:
    """Kinds that weigh, and are more than FACTOR from the model either way."""
    return [
        f"{k.group} {k.kind}: {k.ratio:.2f} of the model"
        for k in kinds
        if k.kind in JUDGED and not 1 / FACTOR <= k.ratio <= FACTOR
    ]
