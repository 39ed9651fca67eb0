# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token-level speculation on a simulated chip: whole texts by trees, against the reference's loop."""

from __future__ import annotations

import pytest
from loguru import logger

from models.llama31_8b.sampling import SamplingParams
from tests.support.tt_tolerances import prompt
from tests.tt.tree_programs import texts

LIMIT_S = 1700
# Two users; no two best logits of their greedy texts lie closer than 0.06.
PROMPTS = [prompt(9, 6), prompt(20, 23)]


@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_greedy_texts_and_their_metrics_are_the_references(sim_device):
    """Steps are captured once and replayed with other trees; the users end apart."""
    told = sim_device("2x1", dispatch="fast").run(texts, PROMPTS, 14, SamplingParams(0.0), timeout=LIMIT_S)
    logger.info("{}", told)
    assert told["found"]["texts"] == told["wanted"]["texts"]
    assert told["found"]["ends"] == told["wanted"]["ends"] == ["length"] * 2
    counts = told["found"]["counts"]
    assert counts == told["wanted"]["counts"]
    assert counts["num_accepted_tokens"] > 5 and counts["num_drafts"] > counts["num_accepted_tokens"] / 3
    assert told["why_eager"] is None and told["replays"] > 3


@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_drawn_texts_take_the_references_numbers(sim_device):
    """At a temperature at which drafts are accepted and rejected, equal seeds give equal texts."""
    params = SamplingParams(0.1, seed=1)
    told = sim_device("2x1", dispatch="fast").run(texts, PROMPTS[:1], 10, params, timeout=LIMIT_S)
    logger.info("{}", told)
    assert told["found"]["texts"] == told["wanted"]["texts"]
    counts = told["found"]["counts"]
    assert counts == told["wanted"]["counts"]
    assert 0 < counts["num_accepted_tokens"] < counts["num_draft_tokens"]
