# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Priorities: which speculative rank of a pair holds the right activations (ALSpec paper, algorithm 2).

Each rank keeps MAX_USERS words, one per user; the kernel side is `kernels/priority.hpp`. A rank's priority is the
highest of its users': one rejected user keeps the whole rank at work.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.tensor_facts import check_words, facts

MAX_USERS = 32

# The values after a layer's verification.
YIELDED = 0  # the sender's guess was accepted: the receiver carries on, the sender may skip
HOLDS_GUESS = 1  # the receiver, which works on the guess
HOLDS_EXACT = 2  # the sender's guess was rejected: the sender carries on with the exact result
HOLDS_EXACT_UNVERIFIED = 3  # the sender, at a position with too few cached tokens to guess; exact like HOLDS_EXACT
NAMES = {YIELDED: "accepted", HOLDS_GUESS: "received", HOLDS_EXACT: "rejected", HOLDS_EXACT_UNVERIFIED: "bypassed"}

# Among gathered priorities: those of a peer that the exchange did not reach.
UNKNOWN = 0xFFFFFFFF

# Where decoding starts: both hold the same activations, the first rank sends.
INITIAL = (HOLDS_EXACT, YIELDED)


def priority_row(values: int | Sequence[int]) -> torch.Tensor:
    """Return the contents of one rank's priority tensor: int32 [1, 1, 1, MAX_USERS], unused users 0.

    values: one value for all users or one per user, each of NAMES. Errors: ValueError.
    """
    values = [values] * MAX_USERS if isinstance(values, int) else list(values)
    check_users(len(values))
    if wrong := [value for value in values if value not in NAMES]:
        raise ValueError(f"a priority is one of {sorted(NAMES)}, not {wrong[0]}")
    row = torch.zeros(1, 1, 1, MAX_USERS, dtype=torch.int32)
    row[..., : len(values)] = torch.tensor(values, dtype=torch.int32)
    return row


def check_users(users: int) -> int:
    """Return `users` if a priority tensor can hold them. Errors: ValueError."""
    if type(users) is not int or not 1 <= users <= MAX_USERS:
        raise ValueError(f"users must be from 1 to {MAX_USERS}, not {users!r}")
    return users


def check_priority_tensor(tensor: ttnn.Tensor) -> None:
    """Raise UnsupportedError unless `tensor` is a priority tensor: uint32 [1, 1, 1, MAX_USERS], row-major, interleaved
    on the device."""
    check_words("priority", facts("priority", tensor), "UINT32", (1, 1, 1, MAX_USERS))
