# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A vocabulary split over the chips of a TP group: on simulated meshes, over the fabric."""

from __future__ import annotations

import pytest
import torch
from loguru import logger

from tests.tt_kernels.speculative_sampling.sampling_cases import (
    Batch,
    likely_rejections,
    random_batch,
    spoiled_batch,
    tp_body,
)
from tests.tt_kernels.speculative_sampling.sampling_checks import (
    EXACT,
    SIGMOID,
    Tally,
    check_rows,
    outcome_rows,
)
from tt_kernels.speculative_sampling.reference import GROUP_BROKEN

pytestmark = pytest.mark.sim

LIMIT_S = 900
GRID = "2x1"  # of each chip: the hub's core, and one for users
PATIENCE_S, IMPATIENCE_S = 2.0, 3e-5
BROKEN = [GROUP_BROKEN, 0, 0, 0]


def check(mesh, batches: list[Batch], options: dict, op: str = EXACT, **more) -> None:
    """Every chip ends with the same tokens: those of a vocabulary that is not split."""
    found = mesh.run(tp_body, batches, options, PATIENCE_S, op=op, timeout=LIMIT_S, **more)
    total = Tally()
    for batch, result in zip(batches, found, strict=True):
        assert (result.group_error, result.error) == (None, None)
        assert all(torch.equal(rows, result.rows[0]) for rows in result.rows)
        total += check_rows(batch, result.rows[0].tolist(), options, op)
    logger.info(f"on {len(found[0].rows)} chips: {total}")
    assert total.near <= max(1, total.verified // 20)


def test_exact(sim_mesh):
    """Residuals of several siblings; parts that are no multiple of 32."""
    batches = [random_batch(300, 2, 4, 100, "flat"), likely_rejections(310, 2, 4, 66)]
    check(sim_mesh((1, 2), GRID), batches, {"temperature": 0.8, "draft_temperature": 1.1})


@pytest.mark.slow
def test_exact_with_mass_on_one_chip(sim_mesh):
    batches = [
        random_batch(300, 3, 5, 100, "close"),
        likely_rejections(310, 3, 5, 66),
        random_batch(320, 2, 4, 70, "disjoint"),
    ]
    check(sim_mesh((1, 2), GRID), batches, {"temperature": 0.8, "draft_temperature": 1.1})


@pytest.mark.slow
def test_point_masses(sim_mesh):
    check(sim_mesh((1, 2), GRID), [random_batch(330, 4, 5, 90, "points")], {})


def test_sigmoids(sim_mesh):
    batches = [random_batch(340, 1, 4, 100, "flat"), likely_rejections(350, 2, 3, 66)]
    check(sim_mesh((1, 2), GRID), batches, {"alpha": -20.0, "beta": 30.0}, SIGMOID)


@pytest.mark.parametrize("op", (EXACT, pytest.param(SIGMOID, marks=pytest.mark.slow)))
def test_errors_are_statuses_on_all_chips(sim_mesh, op):
    """What is wrong lies with the last chip."""
    batch, statuses = spoiled_batch(64)
    (found,) = sim_mesh((1, 2), GRID).run(tp_body, [batch], {}, PATIENCE_S, op=op, timeout=LIMIT_S)
    assert found.group_error is None and "user 0: target logits with NaN" in found.error
    for rows in found.rows:
        assert rows.tolist()[:-1] == [[status, 0, 0, 0, *4 * [-1]] for status in statuses]
        assert rows.tolist()[-1] == outcome_rows(batch, {}, op)[-1]


def test_a_chip_that_cannot_be_heard_is_given_up_on(sim_mesh):
    """The cable is out: both chips end in time with a status and no token, in the next call too."""
    worker = sim_mesh((1, 2), GRID)
    batch = random_batch(360, 2, 2, 64, "flat")
    try:
        worker.run(tp_body, [batch], {}, PATIENCE_S, timeout=LIMIT_S)
        worker.links.cut()
        results = worker.run(tp_body, [batch, batch], {}, IMPATIENCE_S, timeout=LIMIT_S)
    finally:
        worker.kill()
    for found in results:
        assert "chip (0, 0) gave up in exchange 1 of a user: TP rank 1" in found.group_error
        assert "chip (0, 1) gave up in exchange 1 of a user: TP rank 0" in found.group_error
        assert found.error == found.group_error
        for rows in found.rows:
            assert rows.tolist() == 2 * [BROKEN + 4 * [-1]]


@pytest.mark.slow
def test_cores_and_chips_together(sim_mesh):
    """Users in turn on two cores of each of two chips."""
    batches = [random_batch(370, 2, 2, 2200, "flat")]
    check(sim_mesh((1, 2), "2x2"), batches, {"cores_per_user": 2}, core=(1, 1))


@pytest.mark.slow
def test_four_chips(sim_mesh):
    check(sim_mesh((1, 4), GRID), [random_batch(390, 2, 4, 132, "flat")], {})
