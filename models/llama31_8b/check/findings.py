# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a stage found, and what a run concludes from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

PASS, FAIL, SKIPPED, COULD_NOT_RUN = "pass", "fail", "skipped", "could not run"
STATUSES = (PASS, FAIL, SKIPPED, COULD_NOT_RUN)


class CouldNotRun(Exception):
    """Something that a stage needs of this machine is missing, so that it says nothing of the boards."""


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
    """The result of one stage. why: of any status but pass, in one line. advice: what to do about it.
    seconds: of its process."""

    stage: str
    status: str
    seconds: float = 0.0
    why: str = ""
    advice: tuple[str, ...] = ()
    checks: tuple[Check, ...] = field(default=())


def failed_checks(checks: Iterable[Check]) -> str:
    """Return what did not agree, in one line; empty if all did."""
    wrong = [check for check in checks if check.ok is False]
    return "; ".join(f"{check.name}: expected {check.expected}, measured {check.measured}" for check in wrong)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 2 if a stage failed, else 1 if one could not run, else 0."""
    statuses = {finding.status for finding in findings}
    return 2 if FAIL in statuses else 1 if COULD_NOT_RUN in statuses else 0
