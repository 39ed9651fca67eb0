# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Outcomes of a chip against the torch model of the kernels' arithmetic, decision by decision."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.reference.spec_decode.draft_verification import (
    SigmoidApproximation,
    verify_exact,
    verify_sigmoid,
)
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from tests.tt_kernels.speculative_sampling.borders import walk, walk_sigmoid
from tests.tt_kernels.speculative_sampling.sampling_cases import Batch
from tt_kernels.speculative_sampling.reference import (
    VerificationResult,
    sigmoid_reference,
    speculative_sampling_reference,
)

EXACT, SIGMOID = "speculative_sampling", "lossy_sigmoid_sampling"
_LAYOUT_OPTIONS = ("grid", "cores_per_user")


@dataclass
class Tally:
    """verified: users; near: those that came to a border; differing: of these, those that decided otherwise; accepted:
    drafted tokens."""

    verified: int = 0
    near: int = 0
    differing: int = 0
    accepted: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def as_rows(outcomes: list[VerificationResult], tokens: torch.Tensor) -> list[list[int]]:
    """The rows that the op writes."""
    rows, nodes = [], tokens.shape[1]
    for user, outcome in enumerate(outcomes):
        new = [] if outcome.status else [int(tokens[user, node]) for node in outcome.path] + [outcome.bonus]
        head = [outcome.status, len(outcome.path), outcome.bonus, len(new)]
        rows.append([*head, *outcome.path, *[-1] * (nodes - len(outcome.path)), *new, *[-1] * (nodes - len(new))])
    return rows


def outcome_rows(batch: Batch, options: dict, op: str = EXACT) -> list[list[int]]:
    """What the model writes to the rows of results. options: of the op."""
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


def trees_of(parents: torch.Tensor) -> TokenTreeBatch:
    """Trees with the op's padding: nodes without a parent other than the root are reached by nobody."""
    return TokenTreeBatch.stack([TokenTree.from_parents(row) for row in parents.tolist()])


def reference_decisions(batch: Batch, options: dict, op: str = EXACT) -> list[tuple[list[int], int]]:
    """Accepted nodes and bonus of each user, by the reference's verifiers. options: of the op."""
    temperature = options.get("temperature", 1.0)
    trees = trees_of(batch.parents)
    if op == SIGMOID:
        scaling = SigmoidApproximation(options.get("alpha", -1e3), options.get("beta", 1e3))
        params = SamplingParams(temperature=temperature)
        found = verify_sigmoid(
            trees, batch.tokens, batch.target.float(), batch.draft.float(), batch.uniforms, params, scaling
        )
    else:
        heat = options.get("draft_temperature", temperature)
        found = verify_exact(
            trees,
            batch.tokens,
            torch.softmax(batch.target.double() / temperature, -1),
            None if batch.draft is None else torch.softmax(batch.draft.double() / heat, -1),
            batch.uniforms,
            with_replacement=options.get("with_replacement", False),
        )
    return [(found.nodes(user), int(found.bonus[user])) for user in range(len(batch.tokens))]


def check_rows(
    batch: Batch, rows: list[list[int]], options: dict, op: str = EXACT, references: list | None = None
) -> Tally:
    """Asserts that rows are the model's, float64's and the reference's (reference_decisions), but for users that came
    to a border."""
    tally = Tally()
    for user, (row, expected) in enumerate(zip(rows, outcome_rows(batch, options, op), strict=True)):
        path, bonus, nearest = float64_walk(batch, user, options, op)
        tally += Tally(1, int(nearest < 1), int(nearest < 1 and row != expected), row[1])
        assert nearest < 1 or row == expected, f"user {user}: {row}, not {expected}"
        nodes = batch.tokens.shape[1]
        decided = row[4 : 4 + row[1]], row[2]
        assert nearest < 1 or (row[0], *decided) == (0, path, bonus)
        assert nearest < 1 or references is None or decided == references[user]
        assert all(0 <= token < batch.target.shape[-1] for token in row[4 + nodes :][: row[3]])
    return tally
