# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The kernels of speculative sampling on the simulated N150 against the torch model of their arithmetic."""

from __future__ import annotations

import pytest
import torch
from loguru import logger

from tests.tt_kernels.speculative_sampling.sampling_cases import (
    Batch,
    greedy_body,
    likely_rejections,
    random_batch,
    sampling_body,
    spoiled_batch,
    spoiled_beside_the_draft,
)
from tests.tt_kernels.speculative_sampling.sampling_checks import (
    EXACT,
    SIGMOID,
    Tally,
    as_rows,
    check_rows,
    outcome_rows,
)
from tt_kernels.speculative_sampling.reference import BAD_TARGET, greedy_reference

pytestmark = pytest.mark.sim

LIMIT_S = 900
CHIP = "1x1"


def check(device, batches: list[Batch], options: dict, layout: str = "ROW_MAJOR_LAYOUT", op: str = EXACT) -> None:
    found = device.run(sampling_body, batches, options, layout, op, timeout=LIMIT_S)
    tallies = [check_rows(batch, rows.tolist(), options, op) for batch, rows in zip(batches, found, strict=True)]
    total = sum(tallies, Tally())
    logger.info(f"on the chip: {total}")
    assert total.near <= max(1, total.verified // 20)


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


def test_sigmoids(sim_device):
    """Flat, sharp, and draft equal to the target (so that nothing is left to resample from), from both layouts."""
    batches = [
        random_batch(100, 6, 4, 100, "flat", True),
        random_batch(110, 4, 9, 1100, "sharp"),
        random_batch(120, 3, 4, 70, "masked"),
        likely_rejections(130, 6, 3, 90),
    ]
    device, options = sim_device(CHIP), {"temperature": 0.7, "alpha": -20.0, "beta": 30.0}
    check(device, batches, options, "TILE_LAYOUT", SIGMOID)
    check(device, [likely_rejections(140, 6, 4, 120), random_batch(150, 3, 3, 50, "equal")], {}, op=SIGMOID)


@pytest.mark.parametrize("op", (EXACT, SIGMOID))
def test_errors_are_statuses(sim_device, op):
    """NaNs of either sign, infinity, a token and a parent out of range; and a user beside them that is well."""
    batch, statuses = spoiled_batch(40)
    rows = sim_device(CHIP).run(sampling_body, [batch], {}, op=op, timeout=LIMIT_S)[0].tolist()
    assert rows[:-1] == [[status, 0, 0, 0, *4 * [-1]] for status in statuses]
    assert rows[-1] == outcome_rows(batch, {}, op)[-1]


@pytest.mark.parametrize("op", (EXACT, SIGMOID))
def test_a_negative_nan_beside_the_drafted_token_is_a_status(sim_device, op):
    """The vector unit takes it for -infinity, which is allowed; in the row that a token is drawn from."""
    batch, statuses = spoiled_beside_the_draft(40)
    options = {"alpha": -20.0, "beta": 30.0} if op == SIGMOID else {}
    rows = sim_device(CHIP).run(sampling_body, [batch], options, op=op, timeout=LIMIT_S)[0].tolist()
    assert [row[0] for row in rows] == statuses
    assert rows == outcome_rows(batch, options, op)


def test_a_user_on_several_cores(sim_device):
    """Two tiles of ids on two cores; users take turns on them."""
    device, options = sim_device("2x2"), {"cores_per_user": 2}
    check(device, [random_batch(200, 2, 3, 1100, "flat")], options, "TILE_LAYOUT")
    check(device, [likely_rejections(240, 2, 3, 1100)], options, "TILE_LAYOUT", SIGMOID)


@pytest.mark.slow
def test_a_user_on_three_cores(sim_device):
    """Three tiles of ids over two and three cores, in all modes."""
    device = sim_device("2x2")
    for op, batches, options in (
        (EXACT, [random_batch(200, 2, 4, 2100, "flat"), random_batch(210, 1, 3, 2500, "points")], {}),
        (EXACT, [likely_rejections(220, 2, 5, 2100)], {"with_replacement": True}),
        (SIGMOID, [random_batch(230, 2, 4, 2500, "flat"), likely_rejections(240, 2, 3, 2100)], {}),
    ):
        for cores in (2, 3):
            check(device, batches, options | {"cores_per_user": cores}, "TILE_LAYOUT", op)


@pytest.mark.parametrize("op", (EXACT, pytest.param(SIGMOID, marks=pytest.mark.slow)))
def test_errors_on_several_cores_are_statuses(sim_device, op):
    """What is wrong lies with the second core."""
    batch, statuses = spoiled_batch(1100)
    options = {"cores_per_user": 2}
    rows = sim_device("2x2").run(sampling_body, [batch], options, op=op, timeout=LIMIT_S)[0].tolist()
    assert rows[:-1] == [[status, 0, 0, 0, *4 * [-1]] for status in statuses]
    assert rows[-1] == outcome_rows(batch, {}, op)[-1]


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
