# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The rule of the gate without a device: the reference of the op's tests."""

from __future__ import annotations

from collections.abc import Sequence

from tt_kernels.common.priority import NAMES, YIELDED, check_users


def skips(priorities: Sequence[int], users: int) -> bool:
    """Return whether a chip with these priorities skips: all of its `users` have priority 0."""
    return max(priorities[: check_users(users)]) == YIELDED


def count(priorities: Sequence[int], users: int) -> dict[str, int]:
    """Return what one call adds to a row of the outcome log, by name; values that are no priority are `invalid`."""
    found = dict.fromkeys((*NAMES.values(), "invalid"), 0)
    for value in priorities[: check_users(users)]:
        found[NAMES.get(value, "invalid")] += 1
    return found
