# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the ops of a round do, on torch tensors in op.py's tuples; integers are int64."""

from __future__ import annotations

import torch

from tt_kernels.draft_round.op import Chain, Decided, DraftStep


def begin_chain_reference(decided: Decided, choices: torch.Tensor, nodes: int) -> tuple[DraftStep, Chain]:
    """Return the first draft step and the chains of root and first draft, from what was decided."""
    users = torch.arange(len(decided.cached))
    active = decided.cached >= 0
    at_last = (
        decided.tokens.view(-1, nodes)[users, decided.last],
        choices.view(-1, nodes)[users, decided.last],
    )
    root, first = (torch.where(active, found, 0) for found in at_last)
    held = torch.where(active, decided.cached + decided.last + 1, -1)
    rows = torch.zeros(len(users), nodes, dtype=torch.int64)
    rows[:, 0], rows[:, 1] = root, first
    positions = torch.where(active[:, None], held[:, None] - 1 + torch.arange(nodes), 0)
    step = DraftStep(first[None], held, held.clamp(min=0)[None])
    return step, Chain(rows.view(1, -1), torch.where(active, held - 1, -1), positions.view(1, -1), rows)


def append_token_reference(chosen: torch.Tensor, node: int, chain: Chain) -> Chain:
    """Return the chains with the tokens chosen for `node`."""
    rows = chain.rows.clone()
    rows[:, node] = torch.where(chain.prefix >= 0, chosen[0], rows[:, node])
    return chain._replace(tokens=rows.view(1, -1), rows=rows)


def take_result_reference(result: torch.Tensor, decided: Decided) -> Decided:
    """Return what is decided after a verification's result."""
    nodes = (result.shape[1] - 4) // 2
    counts, new = result[:, 3], result[:, 4 + nodes :]
    taken = (decided.cached >= 0) & (counts > 0)
    column = torch.arange(nodes)
    cached = torch.where(taken, decided.cached + decided.last + 1, decided.cached)
    tokens = torch.where(column < counts[:, None], new, 0)
    old_tokens, old_angles = (values.view(-1, nodes) for values in (decided.tokens, decided.angles))
    return Decided(
        torch.where(taken[:, None], tokens, old_tokens).view(1, -1),
        cached,
        torch.where(taken[:, None], cached[:, None] + column, old_angles).view(1, -1),
        torch.where(taken, counts - 1, decided.last),
        torch.where(taken, nodes * torch.arange(len(taken)) + counts - 1, decided.row[0])[None],
    )
