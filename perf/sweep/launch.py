# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What is timed: a call, and what has to happen around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perf.sweep.groups import OP_GROUP


def nothing() -> None:
    return None


@dataclass
class Launch:
    """run: what is timed. code: op code of programs that ttnn knows as a generic op. before, after: each time, not
    timed. compiled: once, after the first run, which compiles. check: raises where what ran went wrong on a chip.
    model: of a decode step, else None."""

    run: Callable[[], Any]
    code: str = "GenericOp"
    before: Callable[[], Any] = nothing
    after: Callable[[], Any] = nothing
    compiled: Callable[[], Any] = nothing
    check: Callable[[], Any] = nothing
    group: str = OP_GROUP
    model: Any = None
