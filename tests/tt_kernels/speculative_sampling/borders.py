# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How near a verification came to deciding otherwise, in float64 and without anything of the op or the reference."""

from __future__ import annotations

import torch

from tests.tt_kernels.speculative_sampling.sampling_cases import Batch

# Decisions of the op are the reference's unless |u q - p| is smaller, in units of what is left of the target's mass at
# the node; and its drawn tokens unless the uniform is that near to the border of two tokens.
BOUND = 2.0**-19


def walk_sigmoid(batch: Batch, user: int, temperature: float, alpha: float, beta: float):
    """Walk as `walk` does, by the lossy approximation; in a draw from sigmoids half a unit of each weight, 2^-31,
    counts too."""
    parents, tokens = batch.parents[user].tolist(), batch.tokens[user].tolist()
    uniforms = batch.uniforms[user].tolist()
    nearest, path, node = float("inf"), [], 0
    while True:
        rows = (batch.target[user, node].double(), batch.draft[user, node].double())
        p, q = (torch.sigmoid((row / temperature - alpha) / (beta - alpha)) for row in rows)
        children = [i for i, parent in enumerate(parents) if parent == node]
        accepted = None
        for child in children:
            gap = uniforms[child] * float(q[tokens[child]]) - float(p[tokens[child]])
            nearest = min(nearest, abs(gap) / BOUND)
            if gap <= 0:
                accepted = child
                break
        if accepted is not None:
            path.append(accepted)
            node = accepted
            continue
        mass, unsure = (p - q).clamp(min=0), 0.0
        if children and mass.sum() > 0:
            unsure = len(mass) * 2.0**-32
            if mass.sum() < 2 * unsure:
                return path, None, 0.0
        else:
            mass = torch.softmax(rows[0] / temperature, 0)
        sums = mass.cumsum(0)
        goal = uniforms[0] * float(sums[-1])
        bonus = int(torch.searchsorted(sums, torch.tensor(goal, dtype=torch.float64), right=True))
        distance = float((sums[sums > 0] - goal).abs().min())
        return path, bonus, min(nearest, distance / (BOUND * float(sums[-1]) + unsure))


def walk(batch: Batch, user: int, temperature: float, draft_temperature: float, with_replacement: bool):
    """path, bonus, and the smallest distance from a border on the way, in units of BOUND."""
    parents, tokens = batch.parents[user].tolist(), batch.tokens[user].tolist()
    uniforms = batch.uniforms[user].tolist()
    nearest, path, node = float("inf"), [], 0
    while True:
        p = torch.softmax(batch.target[user, node].double() / temperature, 0)
        q = None if batch.draft is None else torch.softmax(batch.draft[user, node].double() / draft_temperature, 0)
        mass, accepted = 1.0, None
        for child in (i for i, parent in enumerate(parents) if parent == node):
            token = tokens[child]
            q_token = 1.0 if q is None else float(q[token])
            if q_token == 0:
                continue
            gap = uniforms[child] * q_token - float(p[token])
            if p[token] > 0:  # else nothing accepts it
                nearest = min(nearest, abs(gap) * mass / BOUND)
            if gap < 0:
                accepted = child
                break
            if q is None:
                left = p.clone()
                left[token] = 0
            else:
                left = (p - q).clamp(min=0)
                if not with_replacement:
                    q[token] = 0
                    q = q / q.sum() if q.sum() > 0 else q
            if left.sum() > 0:
                mass *= float(left.sum())
                p = left / left.sum()
        if accepted is None:
            sums = p.cumsum(0)
            goal = uniforms[0] * float(sums[-1])
            bonus = int(torch.searchsorted(sums, torch.tensor(goal, dtype=torch.float64), right=True))
            # With a uniform of 0 the border is that of a token whose mass is next to nothing.
            nearest = min(nearest, float((sums[sums > 0] - goal).abs().min()) * mass / BOUND)
            return path, bonus, nearest
        path.append(accepted)
        node = accepted
