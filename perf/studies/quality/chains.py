# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation in steps that verify N tokens at once: a text cut into chains of N, every token right.

Each rule (tree_rules.py) speculates by itself: the text goes on with the guesses that it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from .perplexity import join_rates
from .study import COMPARED, KEYS, Cell, Study
from .tree_rules import StepSpeculation

KEY = (*KEYS, "nodes", "rule", "threshold")
# carried: of the outputs taken, the share that would not pass by itself. pass_rate_by_depth: of outputs by themselves.
VALUES = (*COMPARED, "carried", "pass_rate_by_depth", "hit_rate_by_layer", "seconds")
NODES = (1, 4, 16, 64)


def cells(study: Study) -> Iterator[Cell]:
    """Yield a cell per place, number of nodes, rule and finite threshold above 0; one node has one rule, and on a
    chain `likeliest path` is `joint`."""
    for place in study.places():
        for nodes in NODES:
            for rule in ("joint",) if nodes == 1 else ("every node", "joint", "each node"):
                for threshold in (t for t in study.settings.thresholds if 0 < t < float("inf")):
                    key = {**study.key(*place), "nodes": nodes, "rule": rule, "threshold": threshold}
                    yield Cell(key, partial(_measure, study, *place, nodes, rule, threshold))


def _measure(
    study: Study, context: int, start: int, chunk_size: int, nodes: int, rule: str, threshold: float
) -> dict[str, object]:
    policy = StepSpeculation(threshold, study.settings.guess_range(chunk_size), nodes, rule)
    result, columns = study.compared(context, start, policy)
    assert result.accepted is not None and result.verified is not None
    blocks = [torch.stack(policy.passed[at : at + study.layers]) for at in range(0, len(policy.passed), study.layers)]
    steps = result.verified.unflatten(0, (-1, nodes))[:, 0]
    alone = torch.cat(blocks, dim=1)[:, steps]  # [layers, steps, nodes]
    taken = result.accepted.unflatten(1, (-1, nodes))[:, steps]
    return {
        **columns,
        "carried": float((taken & ~alone).sum() / taken.sum().clamp(min=1)),
        "pass_rate_by_depth": join_rates(alone.double().mean((0, 1)).tolist()),
        "hit_rate_by_layer": join_rates(result.hit_rate_by_layer()),
    }
