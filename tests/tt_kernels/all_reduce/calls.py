# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Calls of the all-reduce on simulated chips, and what their results must be."""

from __future__ import annotations

from typing import Any

import torch

from tests.support.run_op import Call, In, Make
from tt_kernels.all_reduce import reference

PATIENCE_S = 2e-3
EPSILON = 1e-5
HALF_STEP = 2.0**-8  # of bfloat16's rounding, relative


def reduce_of(users: int, columns: int, timeout_s: float = PATIENCE_S) -> Make:
    return Make("tt_kernels.all_reduce.op:AllReduce", users, columns, timeout_s=timeout_s, device=True)


def a_chip_each(parts: torch.Tensor, **options) -> In:
    """Return an In of [chips, 1, users, columns], a part for each chip of a row."""
    chips, _, users, columns = parts.shape
    return In(parts.reshape(1, chips, users, columns), split=(None, 1), **options)


def call_of(op: Make, parts: torch.Tensor, residual=None, norm=None, memory: Any = "DRAM", **options) -> Call:
    """Return a call. parts: [chips, 1, users, columns]; residual: [1, users, columns]; norm: [columns]."""
    given: dict[str, Any] = {"epsilon": EPSILON} | options
    if residual is not None:
        given["residual"] = In(residual.reshape(1, 1, *residual.shape[-2:]), memory=memory)
    if norm is not None:
        given["norm"] = In(norm.reshape(1, 1, 1, -1))
    return Call(op, a_chip_each(parts, memory=memory), **given)


def same_on_all_chips(found: dict[tuple[int, int], torch.Tensor]) -> torch.Tensor:
    """Return a result's rows, [users, columns], and hold the chips' bits against each other."""
    first, *others = found.values()
    for other in others:
        assert torch.equal(other.view(torch.int16), first.view(torch.int16)), "chips have different bits"
    return first[0, 0]


def check(found: dict[str, Any], parts, residual=None, norm=None) -> None:
    assert found["errors"]["AllReduce"] is None
    total, normed = reference.all_reduce(list(parts[:, 0]), None if residual is None else residual[0], norm, EPSILON)
    # What cancels costs float32's precision of the largest part alone.
    largest = torch.cat([parts[:, 0], *([] if residual is None else [residual])]).double().abs().amax(dim=0)
    error = (same_on_all_chips(found["sum"]).double() - total).abs()
    assert (error <= HALF_STEP * total.abs() + 2.0**-20 * largest).all(), error.max()
    if norm is not None:
        # No bfloat16 is nearer to float64's but for float32's own rounding.
        relative = (same_on_all_chips(found["normed"]).double() - normed).abs() / normed.abs().clamp_min(1e-6)
        assert relative.max() < 1.02 * HALF_STEP, relative.max()


def draw(seed: int, chips: int, users: int, columns: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return parts, residual and weights of the norm."""
    generator = torch.Generator().manual_seed(seed)
    parts = torch.randn(chips, 1, users, columns, generator=generator).bfloat16()
    residual = (3 * torch.randn(1, users, columns, generator=generator)).bfloat16()
    return parts, residual, (1 + 0.2 * torch.randn(columns, generator=generator)).bfloat16()
