# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which worker merges whose partial result: the host side of kernels/merge_tree.hpp."""

from __future__ import annotations

RADIX = 4  # partial results that a worker merges at once, its own among them


def levels(workers: int) -> int:
    """Return the steps until worker 0 has the partial results of all `workers`: ceil(log4(workers))."""
    return ((workers - 1).bit_length() + 1) // 2


def slots(workers: int) -> int:
    """Return how many workers send to worker 0, each into a slot of its own."""
    return len(senders_to(0, workers))


def senders_to(worker: int, workers: int) -> list[int]:
    """Return the workers that send to `worker`, by slot: three a level, as far as there are `workers`."""
    own = levels(workers) if worker == 0 else _level_of(worker)
    found = [worker + digit * RADIX**level for level in range(own) for digit in range(1, RADIX)]
    return [sender for sender in found if sender < workers]


def parent_of(worker: int) -> int:
    """Return the worker that `worker` sends to: itself without its lowest digit in base 4. 0 stays 0."""
    return worker - worker % RADIX ** (_level_of(worker) + 1)


def _level_of(worker: int) -> int:
    """Return the place of a worker's lowest digit in base 4 that is not 0; 0 for worker 0."""
    return ((worker & -worker).bit_length() - 1) // 2 if worker else 0
