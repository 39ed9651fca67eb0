# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The kernels of speculative sampling on the simulated N150 against the torch model of their arithmetic."""

from __future__ import annotations

import math

import pytest
import torch
from loguru import logger

from tests.kernels.speculative_sampling.borders import walk
from tests.kernels.speculative_sampling.sampling_cases import Batch, greedy_body, random_batch, sampling_body
from tt_kernels.speculative_sampling.reference import (
    BAD_DRAFT,
    BAD_TARGET,
    BAD_TREE,
    Outcome,
    greedy_reference,
    speculative_sampling_reference,
)

pytestmark = pytest.mark.sim

LIMIT_S = 900
CHIP = "1x1"


def outcome_rows(batch: Batch, options: dict) -> list[list[int]]:
    """What the model writes to the rows of outcomes."""
    found = speculative_sampling_reference(
        batch.tokens, batch.parents, batch.target, batch.draft, batch.words, **options
    )
    return as_rows(found, batch.tokens)


def as_rows(outcomes: list[Outcome], tokens: torch.Tensor) -> list[list[int]]:
    rows, nodes = [], tokens.shape[1]
    for user, outcome in enumerate(outcomes):
        new = [] if outcome.status else [int(tokens[user, node]) for node in outcome.path] + [outcome.bonus]
        head = [outcome.status, len(outcome.path), outcome.bonus, len(new)]
        rows.append(
            [*head, *outcome.path, *[-1] * (nodes - len(outcome.path)), *new, *[-1] * (nodes - len(new))]
        )
    return rows


def check(device, batches: list[Batch], options: dict, layout: str = "ROW_MAJOR_LAYOUT") -> None:
    found = device.run(sampling_body, batches, options, layout, timeout=LIMIT_S)
    temperature = options.get("temperature", 1.0)
    near, users = 0, 0
    for batch, rows in zip(batches, found, strict=True):
        for user, (row, expected) in enumerate(zip(rows.tolist(), outcome_rows(batch, options), strict=True)):
            users += 1
            *_, nearest = walk(
                batch, user, temperature, options.get("draft_temperature", temperature),
                options.get("with_replacement", False),
            )  # fmt: skip
            near += nearest < 1
            assert nearest < 1 or row == expected
    logger.info(f"{users} verifications on the chip, {near} of them came to a border")
    assert near <= max(1, users // 20)


def test_without_replacement(sim_device):
    batches = [
        random_batch(10, 3, 5, 100, "flat"),
        random_batch(20, 3, 4, 33, "sharp"),
        random_batch(30, 3, 4, 70, "masked"),
        random_batch(40, 1, 9, 1100, "flat"),
        random_batch(50, 1, 3, 40, "disjoint"),
    ]
    check(sim_device(CHIP), batches, {"temperature": 0.7, "draft_temperature": 1.2})


def test_with_replacement_from_tiles(sim_device):
    batches = [random_batch(60, 4, 5, 100, "flat", True), random_batch(70, 2, 20, 50, "equal", True)]
    check(sim_device(CHIP), batches, {"with_replacement": True}, "TILE_LAYOUT")


def test_point_masses(sim_device):
    check(sim_device(CHIP), [random_batch(80, 4, 5, 90, "points"), random_batch(90, 1, 1, 32, "points")], {})


def test_errors_are_statuses(sim_device):
    """NaNs of either sign, infinity, a token and a parent out of range; and a user beside them that is well."""
    batch = random_batch(0, 7, 2, 40, "flat")
    batch.target[0, 0, 39], batch.target[1, 0, 3] = math.nan, math.inf
    batch.target[2, 0, 3] = -math.nan
    batch.draft[3, 0, 5] = math.nan
    batch.tokens[4, 1], batch.parents[5, 1] = 40, 1
    rows = sim_device(CHIP).run(sampling_body, [batch], {}, timeout=LIMIT_S)[0].tolist()
    statuses = [BAD_TARGET, BAD_TARGET, BAD_TARGET, BAD_DRAFT, BAD_TREE, BAD_TREE]
    assert rows[:6] == [[status, 0, 0, 0, *4 * [-1]] for status in statuses]
    assert rows[6] == outcome_rows(batch, {})[6]


def test_greedy(sim_device):
    """Trees of a few tokens, so that choices meet them; and a choice that is no token."""
    batch = random_batch(5, 12, 6, 40, "points")
    tokens, choices = (
        batch.tokens % 2,
        torch.randint(0, 2, (12, 6), generator=torch.Generator().manual_seed(1)),
    )
    choices[11] = 2**32 - 1
    rows = sim_device(CHIP).run(greedy_body, tokens, batch.parents, choices, 40, timeout=LIMIT_S).tolist()
    assert rows[:11] == as_rows(greedy_reference(tokens, batch.parents, choices), tokens)[:11]
    assert rows[11] == [BAD_TARGET, 0, 0, 0, *12 * [-1]]
