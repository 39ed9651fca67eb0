# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Random cases on the simulated chip, against the torch model, float64 and the reference's verifiers: 16 by default,
2,000 with --run-slow."""

from __future__ import annotations

import pytest
from loguru import logger

from tests.tt_kernels.speculative_sampling.sampling_cases import (
    PARTS,
    Call,
    calls_body,
    part_of_two_thousand,
    random_calls,
)
from tests.tt_kernels.speculative_sampling.sampling_checks import Tally, check_rows, reference_decisions

pytestmark = pytest.mark.sim

LIMIT_S = 1800


def check_calls(device, calls: list[Call]) -> Tally:
    """Status, path and tokens are the model's, float64's and the reference's, unless a border was near."""
    total = Tally()
    for call, rows in zip(calls, device.run(calls_body, calls, timeout=LIMIT_S), strict=True):
        expected = reference_decisions(call.batch, call.options, call.op)
        total += check_rows(call.batch, rows.tolist(), call.options, call.op, expected)
    logger.info(f"on the chip: {total}")
    assert total.near <= max(2, total.verified // 20)
    return total


def test_random_cases(sim_device):
    check_calls(sim_device("1x1"), random_calls(1, 16))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_two_thousand_random_cases(sim_device, part):
    check_calls(sim_device("1x1"), part_of_two_thousand(part))
