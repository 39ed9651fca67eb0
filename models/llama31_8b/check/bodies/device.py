# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The device with ttnn's own ops: opening, an addition, products, replays of a trace."""

from __future__ import annotations

import math
import time

import torch

from ..context import Context
from ..expectations import correlation
from ..findings import Check

REPLAYS = 100
PRODUCTS = 4  # of 32 x 128 by 128 x 32 numbers
MAX_RELATIVE = 0.02  # of the root of the sum of a sum's squared terms: a right sum is off by 0.001


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
    """Multiply random matrices with float32 accumulation (tt-metal issue 38306: with HiFi4 single outputs are wrong by
    powers of two): HiFi3, which the model uses, must be right; what HiFi4 gives is noted only."""
    errors: dict[str, list[torch.Tensor]] = {"HiFi3": [], "HiFi4": []}
    worst = {"HiFi3": (0.0, ""), "HiFi4": (0.0, "")}
    for seed in range(PRODUCTS):
        generator = torch.Generator().manual_seed(38306 + seed)
        left, right = (torch.randn(*size, generator=generator).bfloat16() for size in ((32, 128), (128, 32)))
        expected, size = left.double() @ right.double(), (left.double() ** 2 @ right.double() ** 2).sqrt()
        for fidelity in errors:
            found = _product(context, left, right, fidelity)
            relative = torch.nan_to_num((found - expected).abs() / size, nan=math.inf).flatten()
            errors[fidelity].append(relative)
            at = int(relative.argmax())
            shown = f"{float(found.flatten()[at]):.5g} for {float(expected.flatten()[at]):.5g}"
            worst[fidelity] = max(worst[fidelity], (float(relative[at]), shown))
    checks = []
    for fidelity, name in (("HiFi3", "sums in HiFi3"), ("HiFi4", "sums in HiFi4, which the model never uses")):
        found = torch.cat(errors[fidelity])
        wrong = int((found > MAX_RELATIVE).sum())
        shown = f"{wrong} of {found.numel()} wrong, worst {worst[fidelity][1]}"
        checks.append(Check(name, shown, *(("none wrong", wrong == 0) if fidelity == "HiFi3" else ())))
    return checks


def _product(context: Context, left: torch.Tensor, right: torch.Tensor, fidelity: str) -> torch.Tensor:
    """Return left @ right in float64, multiplied on the device with float32 accumulation."""
    import ttnn

    a, b = (
        ttnn.from_torch(part, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=context.device) for part in (left, right)
    )
    config = ttnn.WormholeComputeKernelConfig(math_fidelity=getattr(ttnn.MathFidelity, fidelity), fp32_dest_acc_en=True)
    return ttnn.to_torch(ttnn.matmul(a, b, dtype=ttnn.float32, compute_kernel_config=config)).double()


def replay(context: Context) -> list[Check]:
    """Capture a gated-MLP-like step as a trace and replay it: all results are those of the first, and near torch's."""
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
    for _ in range(REPLAYS):
        ttnn.execute_trace(device, trace, cq_id=0, blocking=True)
        differ += int(not torch.equal(ttnn.to_torch(result).float(), first))
    took = (time.monotonic() - started) / REPLAYS
    ttnn.release_trace(device, trace)
    pcc = correlation(first, torch.nn.functional.silu(x @ up) @ down)
    return [
        Check(f"{REPLAYS} replays", f"{differ} differ", "0 differ", differ == 0),
        Check("against torch", f"PCC {pcc:.6f}", "PCC of 0.99 or more", pcc >= 0.99),
        Check("seconds per replay, reading included", round(took, 6)),
    ]
