# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The acceptance rule of attention-level speculation (ALSpec paper, section 3.2), and its extension to token trees."""

from __future__ import annotations

import math

import torch

# What a tree step asks of its nodes before a layer goes on with a user's guess.
TREE_RULES = ("joint", "every node", "likeliest path")


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


def accept_tree_guess(
    guess: torch.Tensor, exact: torch.Tensor, threshold: float, rule: str, nodes: torch.Tensor, likeliest: torch.Tensor
) -> bool:
    """Return whether a layer goes on with the guess for all nodes of one user's tree, by one of TREE_RULES.

    "joint": accept_guess of all nodes' heads as one vector. "every node": each node passes by itself. "likeliest
    path": accept_guess of the heads of that path's nodes as one vector. With one node all three are accept_guess.

    guess, exact: [T, n_heads * head_dim]; nodes, likeliest: bool [T], the tree's nodes without padding, and those of
    them on the likeliest path. Raises ValueError for another rule.
    """
    if rule == "every node":
        return bool(accept_guess(guess[nodes], exact[nodes], threshold).all())
    if rule not in TREE_RULES:
        raise ValueError(f"the rule of a tree must be one of {', '.join(TREE_RULES)}, got {rule!r}")
    counted = nodes if rule == "joint" else likeliest
    return bool(accept_guess(guess[counted].view(1, -1), exact[counted].view(1, -1), threshold))
