# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a stage is given, what it found, and what a run concludes from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PASS, FAIL, SKIPPED, COULD_NOT_RUN = "pass", "fail", "skipped", "could not run"
# What eight-bit and bfloat16 numbers leave of an op's or a small model's results, which are about 1 each.
MIN_PCC, MAX_ERROR = 0.99, 0.15


class CouldNotRun(Exception):
    """Something that a stage needs of this machine is missing, so that it says nothing of the boards."""


@dataclass(frozen=True)
class Context:
    """What the body of a stage is given. kind: "sim" or "n150". device: an open ttnn mesh, None for a stage without."""

    kind: str
    device: Any = None

    @property
    def simulated(self) -> bool:
        return self.kind == "sim"


@dataclass(frozen=True)
class Check:
    """One comparison. expected, measured: JSON values for people; ok: whether they agree, None for a figure that
    nothing is compared with."""

    name: str
    measured: Any
    expected: Any = None
    ok: bool | None = None


@dataclass(frozen=True)
class Finding:
    """The result of one stage. why: of any status but pass, in one line. advice: what to do about it. seconds: of its
    process."""

    stage: str
    status: str
    seconds: float = 0.0
    why: str = ""
    advice: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


def failed_checks(checks: Iterable[Check]) -> str:
    """Return what did not agree, in one line; empty if all did."""
    wrong = [check for check in checks if check.ok is False]
    return "; ".join(f"{check.name}: expected {check.expected}, measured {check.measured}" for check in wrong)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 2 if a stage failed, else 1 if one could not run, else 0."""
    statuses = {finding.status for finding in findings}
    return 2 if FAIL in statuses else 1 if COULD_NOT_RUN in statuses else 0


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return Pearson's correlation: 1 for equal tensors, 0 if one is constant or not finite."""
    import torch

    if torch.equal(a, b):
        return 1.0
    value = torch.corrcoef(torch.stack([a.double().flatten(), b.double().flatten()]))[0, 1]
    return float(torch.nan_to_num(value, nan=0.0))


def near(
    name: str, measured: torch.Tensor, expected: torch.Tensor, min_pcc: float = MIN_PCC, max_error: float = MAX_ERROR
) -> Check:
    """Compare with a reference, by PCC (of two and more values) and the largest error."""
    measured, expected = measured.double().flatten(), expected.double().flatten()
    pcc = correlation(measured, expected) if expected.numel() > 1 else 1.0
    error = float((measured - expected).abs().max())
    shown = f"PCC {pcc:.6f}, largest error {error:.4f} ({error / max(float(expected.abs().max()), 1e-30):.2%})"
    wanted = f"PCC of {min_pcc} or more, errors of {max_error:g} or less"
    return Check(name, shown, wanted, pcc >= min_pcc and error <= max_error)
