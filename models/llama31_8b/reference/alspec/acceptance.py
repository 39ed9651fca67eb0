# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The acceptance rule of attention-level speculation (ALSpec paper, section 3.2), and its extension to token trees."""

from __future__ import annotations

import math

import torch


def check_threshold(threshold: float) -> float:
    """Return the threshold as a float. Raises ValueError unless it is a number >= 0 (infinity allowed)."""
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not threshold >= 0:
        raise ValueError(f"threshold must be a number >= 0 (inf accepts every guess), got {threshold!r}")
    return float(threshold)


def accept_guess(guess: torch.Tensor, exact: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return which guesses are accepted: ||guess - exact||2 < threshold * ||exact||2, strictly, over all heads of a
    query.

    guess, exact: [queries, n_heads * head_dim]; norms accumulate in float32. Returns bool [queries].
    Threshold 0 accepts nothing, not even a perfect guess; an infinite one accepts everything (the sink
    policy), where the formula alone would say inf * 0 for a zero output.
    """
    if math.isinf(threshold):
        return torch.ones(guess.shape[0], dtype=torch.bool, device=guess.device)
    exact = exact.float()
    distance = torch.linalg.vector_norm(guess.float() - exact, dim=1)
    return distance < torch.linalg.vector_norm(exact, dim=1) * threshold


def accept_tree_guess(guess: torch.Tensor, exact: torch.Tensor, threshold: float, nodes: torch.Tensor) -> bool:
    """Return whether a layer goes on with the guess for all nodes of one user's tree: accept_guess of all nodes' heads
    as one vector. guess, exact: [T, n_heads * head_dim]; nodes: bool [T], without padding."""
    return bool(accept_guess(guess[nodes].view(1, -1), exact[nodes].view(1, -1), threshold))
