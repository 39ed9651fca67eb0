# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The all-reduce in torch, in float64: the reference of the op's tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def all_reduce(
    partials: Sequence[torch.Tensor],
    residual: torch.Tensor | None = None,
    norm: torch.Tensor | None = None,
    epsilon: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the sum of the chips' [..., columns] and the residual, and with `norm`, [columns], its RMS norm; float64,
    nothing is rounded."""
    total = torch.stack([part.double() for part in partials]).sum(dim=0)
    if residual is not None:
        total = total + residual.double()
    if norm is None:
        return total, None
    mean = total.square().mean(dim=-1, keepdim=True)
    return total, total / (mean + epsilon).sqrt() * norm.double()
