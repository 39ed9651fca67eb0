# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Texts of 24 tokens on a row of two simulated chips by a draft model, layer-parallel too, against plain decoding and
the reference's loop; test_tree_generator.py has shorter ones of one chip by every drafter."""

from __future__ import annotations

import pytest
from loguru import logger

from tests.models.tt.spec_decode.tree_programs import texts_by_a_draft_model
from tests.support.tt_tolerances import MIN_PCC, NEAR_TIE, prompt

TOKENS, LENGTH = 24, 4
LIMIT_S = 5300
ROW, GRID = (1, 2), "4x2"  # a reduction over the two chips of a row wants eight cores

pytestmark = [pytest.mark.sim, pytest.mark.slow, pytest.mark.timeout(5400)]


# A prompt of whose text no two best logits lie closer than 0.06; accepted tokens of the reference's loop over it.
@pytest.mark.parametrize("fuzzy, accepted", [(None, 10), ([[0, 1]], 17)], ids=["sequential", "fuzzy"])
def test_by_a_draft_model(sim_mesh, fuzzy, accepted):
    """Rounds of chains that stay on the chips. Where the reference's draft has a near tie, chains may differ, and with
    them how many tokens a round accepts, but not the text."""
    told = sim_mesh(ROW, GRID).run(texts_by_a_draft_model, [prompt(12, 1)], TOKENS, LENGTH, fuzzy, timeout=LIMIT_S)
    logger.info("{}", told)
    found, wanted, plain = told["texts"]
    assert found == wanted == plain and len(found[0]) == TOKENS
    assert all(row["pcc"] >= MIN_PCC for row in told["cache"])
    below = [gap for chain in told["chains"] for gap in chain]
    assert max(below) < NEAR_TIE and below.count(0.0) > len(below) / 2
    found, wanted = told["counts"]
    assert wanted["num_accepted_tokens"] == accepted
    assert found["num_drafts"] == len(told["chains"])
    if not any(below):
        assert found == wanted
    calibrating, drafting, verifying = told["seconds"]
    assert 0 < calibrating < drafting and verifying > 0


def test_rounds_on_a_row_are_replayed(sim_mesh):
    """From traces: all rounds of the text but the first."""
    tokens = 9
    told = sim_mesh(ROW, GRID, dispatch="fast").run(texts_by_a_draft_model, [prompt(12, 1)], tokens, 2, timeout=LIMIT_S)
    logger.info("{}", told)
    found, wanted, plain = told["texts"]
    assert found == wanted == plain
    # Every round gives a token beside those it accepts, and prefill the first.
    rounds = tokens - 1 - told["counts"][0]["num_accepted_tokens"]
    assert told["replays"] == rounds - 1 > 1
