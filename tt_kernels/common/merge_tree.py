# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which worker merges whose partial result: the host side of kernels/merge_tree.hpp."""

from __future__ import annotations

from collections.abc import Sequence


def levels(workers: int) -> int:
    """Return the steps until worker 0 has the partial results of all `workers`: ceil(log2(workers))."""
    return (workers - 1).bit_length()


def parent_of(worker: int) -> int:
    """Return the worker that `worker` (not 0) sends to, at level `level_of(worker)`."""
    return worker & (worker - 1)


def level_of(worker: int) -> int:
    """Return the level at which a worker hands its part over: its lowest set bit."""
    return (worker & -worker).bit_length() - 1


def sources_of(worker: int, has: Sequence[bool]) -> list[int]:
    """Return the levels at which `worker` receives something; has[w]: whether worker w has a part of its own."""
    own = levels(len(has)) if worker == 0 else level_of(worker)
    return [level for level in range(own) if any(has[worker + (1 << level) : worker + (2 << level)])]
