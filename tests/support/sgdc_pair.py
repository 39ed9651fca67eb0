# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Exchange and gate on two connected chips, boards or simulated ones: layers to run there, and what they must leave."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from tests.support.run_op import Call, In, Make, priorities, run_ops
from tt_kernels.common import reference

SHAPE = (32, 4096)  # Llama 3.1 8B's residual stream in decode
USERS = 2


def exchange_of(axis: int = 1, users: int = USERS, timeout_s: float = 2.0) -> Make:
    pairs = Make("tt_kernels.common.peer:ChipPairs", axis, device=True)
    return Make("tt_kernels.device_exchange.op:DeviceExchange", pairs, users=users, timeout_s=timeout_s)


def a_chip_each(parts: Sequence[torch.Tensor], dtype: str = "bfloat16", axis: int = 1, read: str | None = None) -> In:
    """Return a tensor of which each chip has a part [1, ...]."""
    return In(torch.cat(list(parts)), dtype, split=(0, None) if axis == 0 else (None, 0), read=read)


def rows_each(rows: Sequence[Sequence[int]], axis: int = 1) -> In:
    """Return each chip's priorities."""
    return a_chip_each([priorities(row).values for row in rows], "uint32", axis)


def both(found: dict[tuple[int, int], torch.Tensor]) -> list[torch.Tensor]:
    """Return what both chips have, by rank."""
    return [found[place] for place in sorted(found)]


def layer(exchange, residual, row, total):
    """Exchange, then double the residual on the chips with a priority above 0; in the worker."""
    import ttnn

    from tt_kernels.compute_gate.op import skip_compute

    gathered = exchange(residual, row)
    with skip_compute(row, users=USERS):
        ttnn.add(residual, residual, output_tensor=total)
    return gathered


def run_layers(worker, layers, shape=SHAPE, axis: int = 1) -> list[dict[str, Any]]:
    """Run each of `layers` (each chip's priorities and value); return their results."""
    exchange, calls = exchange_of(axis), [Call("tt_kernels.compute_gate.op:clear_compute_gate", device=True)]
    for rows, values in layers:
        residual = a_chip_each([torch.full((1, 1, *shape), float(each)) for each in values], axis=axis, read="held")
        total = a_chip_each([torch.zeros(1, 1, *shape)] * 2, axis=axis, read="sum")
        calls.append(Call(f"{__name__}:layer", exchange, residual, rows_each(rows, axis), total))
    return run_ops(worker, calls)[1:]


def check_layers(layers, results: list[dict[str, Any]]) -> list[int]:
    """Assert that after each layer both chips hold the sender's values, and that only those with work have worked;
    return how many layers each sent."""
    senders = [reference.sender(rows, USERS) for rows, _ in layers]
    for number, ((rows, values), sender, found) in enumerate(zip(layers, senders, results, strict=True)):
        assert found["errors"] == {"ChipPairs": None}
        for chip in (0, 1):
            right = 2 * values[sender] if max(rows[chip]) else 0
            assert (both(found["held"])[chip] == values[sender]).all(), f"layer {number}"
            assert (both(found["sum"])[chip] == right).all(), f"layer {number}"
            assert both(found["out"])[chip][0, 0, :, :USERS].tolist() == rows, f"layer {number}"
    sent = [state.sent for state in results[-1]["states"]["ChipPairs"]]
    assert sent == [senders.count(0), senders.count(1)]
    return sent


def draw_layers(count: int):
    """Draw priorities by the rules of algorithm 2 under random outcomes, and a value per chip that bfloat16 holds."""
    draw, rows, layers = random.Random(9), [[2, 2], [0, 0]], []
    for number in range(count):
        layers.append((rows, (2 * number % 128 + 1, 2 * number % 128 + 2)))
        rows = reference.after_verification(rows, USERS, [draw.random() < 0.7, draw.random() < 0.7])
    return layers
