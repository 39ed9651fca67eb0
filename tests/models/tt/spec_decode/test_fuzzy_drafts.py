# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Layer-parallel drafting on simulated chips: fuzzy steps by logits, and caches after calibration."""

from __future__ import annotations

import pytest
from loguru import logger

from tests.models.tt.parallel_programs import CONFIG  # whose kernels tensor-parallel steps share
from tests.models.tt.spec_decode.fuzzy_programs import draft_and_calibrate
from tests.support.tt_tolerances import MIN_PCC, prompt

DRAFTED, DECIDED = [5], [5, 23]


def check(told: dict) -> None:
    for step in told["fuzzy"]:
        logger.info("fuzzy {}", step)
    logger.info("exact {}", told["exact"])
    for row in told["cache"] + told["own"]:
        logger.info("cache {}", row)
    for step in told["fuzzy"]:
        assert step["pcc"] >= MIN_PCC
        assert step["exact"] < MIN_PCC, "the groups must change the logits, or this shows nothing"
    assert told["exact"]["pcc"] >= MIN_PCC
    for row in told["cache"] + told["own"]:
        assert row["pcc"] >= MIN_PCC


# Groups of the layers, and which of them each of two chips has to itself.
@pytest.mark.sim
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    "groups, own",
    [
        pytest.param([[0, 1]], [(0, 0), (1, 1)], id="one stage"),
        # A group of one layer, and one of a stage of two and a tensor-parallel layer, which all read what enters it.
        pytest.param([[0], [1, 2, 3]], [(1, 0), (2, 1)], marks=pytest.mark.slow, id="two stages"),
    ],
)
def test_a_row_of_two_drafts_the_references_logits_and_calibrates(sim_mesh, groups, own):
    config = CONFIG.with_layers(groups[-1][-1] + 1)
    told = sim_mesh((1, 2), "4x2").run(
        draft_and_calibrate, config, groups, prompt(20, 2), DRAFTED, DECIDED, timeout=2300
    )
    check(told)
    assert [(row["layer"], row["chip"]) for row in told["own"]] == own * 2
    before = min(row["pcc"] for row in told["own before"])
    assert before < MIN_PCC, "fuzzy entries were there"
