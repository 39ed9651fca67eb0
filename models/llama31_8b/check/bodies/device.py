# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The device with ttnn's own ops: opening, an addition, products, replays of a trace."""

from __future__ import annotations

import time

import torch

from ..context import Context
from ..expectations import correlation
from ..findings import Check

REPLAYS, SIM_REPLAYS = 100, 5
SOAK_LOOPS, SIM_SOAK_LOOPS = 50, 2
MAX_RELATIVE = 0.02  # of a product of bfloat16 numbers: issue 38306 is off by powers of two


def opens(context: Context) -> list[Check]:
    """Say what was opened; opening itself is the check."""
    grid = context.device.compute_with_storage_grid_size()
    return [Check("cores", f"{grid.x}x{grid.y}", None if context.simulated else "8x8", _full(context, grid))]


def _full(context: Context, grid) -> bool | None:
    return None if context.simulated else (grid.x, grid.y) == (8, 8)


def stock_op(context: Context) -> list[Check]:
    """Add ones to ones."""
    import ttnn

    ones = ttnn.from_torch(torch.ones(1, 1, 32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=context.device)
    sums = ttnn.to_torch(ttnn.add(ones, ones)).float()
    return [Check("ones + ones", sorted(set(sums.flatten().tolist()))[:4], [2.0], bool((sums == 2).all()))]


def hifi4_probe(context: Context) -> list[Check]:
    """Multiply a row by a column with float32 accumulation (tt-metal issue 38306): HiFi3, which the model uses, must be
    right; what HiFi4 gives is noted only."""
    generator = torch.Generator().manual_seed(38306)
    left, right = (torch.randn(1, 1, *size, generator=generator).bfloat16() for size in ((1, 128), (128, 1)))
    expected = float((left.double() @ right.double()).flatten()[0])
    found = {name: _product(context, left, right, name) for name in ("HiFi3", "HiFi4")}
    near = {name: abs(value - expected) <= MAX_RELATIVE * abs(expected) for name, value in found.items()}
    other = f"{found['HiFi4']}, {'right' if near['HiFi4'] else 'wrong'}"
    return [
        Check("product in HiFi3", found["HiFi3"], expected, near["HiFi3"]),
        Check("product in HiFi4, which the model never uses", other),
    ]


def _product(context: Context, left: torch.Tensor, right: torch.Tensor, fidelity: str) -> float:
    import ttnn

    a, b = (
        ttnn.from_torch(part, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=context.device) for part in (left, right)
    )
    config = ttnn.WormholeComputeKernelConfig(math_fidelity=getattr(ttnn.MathFidelity, fidelity), fp32_dest_acc_en=True)
    product = ttnn.matmul(a, b, dtype=ttnn.float32, compute_kernel_config=config)
    return float(ttnn.to_torch(product).flatten()[0])


def replay(context: Context) -> list[Check]:
    """Capture a gated-MLP-like step as a trace and replay it: all results are those of the first, and near torch's."""
    return _replays(context, SIM_REPLAYS if context.simulated else REPLAYS)


def soak(context: Context) -> list[Check]:
    """Capture and replay again and again, as decode loops do."""
    loops = SIM_SOAK_LOOPS if context.simulated else SOAK_LOOPS
    checks = [check for _ in range(loops) for check in replay(context)]
    wrong = [check for check in checks if check.ok is False]
    return wrong or [Check("loops", f"{loops} without a difference", f"{loops}", True), checks[-1]]


def _replays(context: Context, times: int) -> list[Check]:
    import ttnn

    device, generator = context.device, torch.Generator().manual_seed(1)
    x, up, down = (torch.randn(1, 1, *size, generator=generator) / 8 for size in ((32, 64), (64, 64), (64, 64)))
    on_chip = [ttnn.from_torch(part, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device) for part in (x, up, down)]

    def step():
        return ttnn.matmul(ttnn.silu(ttnn.matmul(on_chip[0], on_chip[1])), on_chip[2])

    first = ttnn.to_torch(step()).float()
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    result = step()
    ttnn.end_trace_capture(device, trace, cq_id=0)
    differ, started = 0, time.monotonic()
    for _ in range(times):
        ttnn.execute_trace(device, trace, cq_id=0, blocking=True)
        differ += int(not torch.equal(ttnn.to_torch(result).float(), first))
    took = (time.monotonic() - started) / times
    ttnn.release_trace(device, trace)
    pcc = correlation(first, torch.nn.functional.silu(x @ up) @ down)
    return [
        Check(f"{times} replays", f"{differ} differ", "0 differ", differ == 0),
        Check("against torch", f"PCC {pcc:.6f}", "PCC of 0.99 or more", pcc >= 0.99),
        Check("seconds per replay, reading included", round(took, 6)),
    ]
