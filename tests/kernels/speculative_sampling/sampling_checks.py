# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Outcomes of a chip against the torch model of the kernels' arithmetic, decision by decision."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.kernels.speculative_sampling.borders import walk, walk_sigmoid
from tests.kernels.speculative_sampling.sampling_cases import Batch
from tt_kernels.speculative_sampling.reference import (
    Outcome,
    sigmoid_reference,
    speculative_sampling_reference,
)

EXACT, SIGMOID = "speculative_sampling", "lossy_sigmoid_sampling"
_LAYOUT_OPTIONS = ("grid", "cores_a_user")


@dataclass
class Tally:
    """verified: users; near: those that came to a border; differing: of these, those that decided otherwise. decisions:
    accepted and rejected drafts, with how many tokens were drawn."""

    verified: int = 0
    near: int = 0
    differing: int = 0
    accepted: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def as_rows(outcomes: list[Outcome], tokens: torch.Tensor) -> list[list[int]]:
    """The rows that the op writes."""
    rows, nodes = [], tokens.shape[1]
    for user, outcome in enumerate(outcomes):
        new = [] if outcome.status else [int(tokens[user, node]) for node in outcome.path] + [outcome.bonus]
        head = [outcome.status, len(outcome.path), outcome.bonus, len(new)]
        rows.append(
            [*head, *outcome.path, *[-1] * (nodes - len(outcome.path)), *new, *[-1] * (nodes - len(new))]
        )
    return rows


def outcome_rows(batch: Batch, options: dict, op: str = EXACT) -> list[list[int]]:
    """What the model writes to the rows of outcomes. options: of the op."""
    model = {EXACT: speculative_sampling_reference, SIGMOID: sigmoid_reference}[op]
    chosen = {name: value for name, value in options.items() if name not in _LAYOUT_OPTIONS}
    found = model(batch.tokens, batch.parents, batch.target, batch.draft, batch.words, **chosen)
    return as_rows(found, batch.tokens)


def float64_walk(batch: Batch, user: int, options: dict, op: str = EXACT):
    """path, bonus and nearest border of borders.py."""
    temperature = options.get("temperature", 1.0)
    if op == SIGMOID:
        return walk_sigmoid(batch, user, temperature, options.get("alpha", -1e3), options.get("beta", 1e3))
    draft_temperature = options.get("draft_temperature", temperature)
    return walk(batch, user, temperature, draft_temperature, options.get("with_replacement", False))


def check_rows(batch: Batch, rows: list[list[int]], options: dict, op: str = EXACT) -> Tally:
    """Asserts that rows are the model's and float64's, but for users that came to a border."""
    tally = Tally()
    for user, (row, expected) in enumerate(zip(rows, outcome_rows(batch, options, op), strict=True)):
        path, bonus, nearest = float64_walk(batch, user, options, op)
        tally += Tally(1, int(nearest < 1), int(nearest < 1 and row != expected), row[1])
        assert nearest < 1 or row == expected, f"user {user}: {row}, not {expected}"
        nodes = batch.tokens.shape[1]
        assert nearest < 1 or (row[0], row[4 : 4 + row[1]], row[2]) == (0, path, bonus)
        assert all(0 <= token < batch.target.shape[-1] for token in row[4 + nodes :][: row[3]])
    return tally
