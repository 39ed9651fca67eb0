# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decide whether a step on simulated chips agrees with the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def lowest_pcc(found: Sequence[float]) -> float:
    """Return the lowest PCC, NaN if any is NaN."""
    return math.nan if any(map(math.isnan, found)) else min(found)


def verdict(found: Sequence[float], required: float) -> int:
    """Print the lowest PCC; exit code 0 when every one reaches `required`, which NaN never does."""
    lowest = lowest_pcc(found)
    print(f"lowest PCC {lowest:.6f}, required {required}")
    return 0 if lowest >= required else 1


def step_figures(step: str, got, expected, show=print) -> dict[str, Any]:
    """Compare logits, float32 [vocab], with the expected ones, and show the figures."""
    import torch

    pcc = float(torch.corrcoef(torch.stack((got, expected)).double())[0, 1])
    best = expected.topk(2).values
    error, token, wanted = float((got - expected).abs().max()), int(got.argmax()), int(expected.argmax())
    show(
        f"{step:10} PCC {pcc:.6f}  largest error {error:.4f}  token {token} (reference {wanted}, "
        f"{float(best[0] - best[1]):.3f} ahead)",
        flush=True,
    )
    return {"step": step, "pcc": pcc, "largest_error": error, "token": token, "reference_token": wanted}
