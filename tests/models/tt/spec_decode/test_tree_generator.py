# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token-level speculation on a simulated chip: whole texts by trees, against the reference's loop."""

from __future__ import annotations

import pytest
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams
from tests.models.tt.spec_decode.tree_programs import texts, texts_by_a_draft_model, texts_by_itself
from tests.support.tt_tolerances import MIN_PCC, NEAR_TIE, prompt, repeating

LIMIT_S = 1700


# Of two users: drafts are accepted, rejected and missing, and no two best logits of their texts lie closer than 0.07.
PROMPTS = [repeating(48), repeating(146)]


@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_greedy_texts_and_their_metrics_are_the_references(sim_device):
    """Steps are captured once and replayed with other trees; the users end apart."""
    told = sim_device("2x1", dispatch="fast").run(texts, PROMPTS, 6, SamplingParams(0.0), timeout=LIMIT_S)
    logger.info("{}", told)
    assert told["found"]["texts"] == told["wanted"]["texts"]
    assert told["found"]["ends"] == told["wanted"]["ends"] == ["length"] * 2
    counts = told["found"]["counts"]
    assert counts == told["wanted"]["counts"]
    assert (counts["num_accepted_tokens"], counts["num_draft_tokens"], counts["num_drafts"]) == (3, 11, 4)
    assert told["why_eager"] is None and told["replays"] >= 2


# Steps cost less with slow dispatch, where none is replayed.
DISPATCH = pytest.mark.parametrize("dispatch", ["slow", pytest.param("fast", marks=pytest.mark.slow)])


@pytest.mark.sim
@pytest.mark.timeout(1800)
@DISPATCH
def test_drawn_texts_take_the_references_numbers(sim_device, dispatch):
    """At a temperature at which drafts are accepted and rejected, equal seeds give equal texts."""
    params = SamplingParams(0.2, seed=5)
    told = sim_device("2x1", dispatch=dispatch).run(texts, PROMPTS[:1], 5, params, timeout=LIMIT_S)
    logger.info("{}", told)
    assert told["found"]["texts"] == told["wanted"]["texts"]
    counts = told["found"]["counts"]
    assert counts == told["wanted"]["counts"]
    assert 0 < counts["num_accepted_tokens"] < counts["num_draft_tokens"]


@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_prompts_that_fill_the_context_go_with_drafts_as_without(sim_device):
    """The nodes of a step go behind a context of 64, into positions that no text has."""
    prompts = [repeating(48) + prompt(38, 3), repeating(146)]
    told = sim_device("2x1").run(texts, prompts, 4, SamplingParams(0.0), 64, timeout=LIMIT_S)
    assert told["found"]["texts"] == told["wanted"]["texts"] == told["plain"]
    assert told["found"]["ends"] == ["context", "length"] and len(told["plain"][0]) == 3


@pytest.mark.sim
@pytest.mark.timeout(1800)
@DISPATCH
def test_rounds_of_chains_stay_on_the_chip(sim_device, dispatch):
    """The first layer drafts for both, two users, who end apart; its cache is calibrated by one pass a round over what
    was decided. Counts are those of the reference's loop, also at the end of a text, where chains are shorter."""
    prompts = [prompt(12, 89), prompt(20, 48)]
    told = sim_device("2x1", dispatch=dispatch).run(texts_by_a_draft_model, prompts, 4, 2, timeout=LIMIT_S)
    check_texts(told)
    check_chains(told["chains"])
    here, there = told["counts"]
    assert here == there and here["num_drafts"] == len(told["chains"])
    assert here["num_accepted_tokens"] > 0
    assert told["replays"] == (1 if dispatch == "fast" else 0)


@pytest.mark.sim
@pytest.mark.timeout(1800)
@DISPATCH
def test_chains_of_a_drawn_text_are_drawn(sim_device, dispatch):
    """From the draft's distribution, by numbers that come before verification's: equal seeds give the tokens of the
    reference's loop, whose numbers lie far from a border."""
    params = SamplingParams(0.3, seed=5)
    told = sim_device("2x1", dispatch=dispatch).run(
        texts_by_a_draft_model, [prompt(12, 7)], 7, 2, params=params, timeout=LIMIT_S
    )
    logger.info("{}", told)
    found, wanted, _ = told["texts"]
    assert found == wanted
    assert told["counts"] == [{"num_drafts": 3, "num_accepted_tokens": 3}] * 2
    for row in told["cache"]:
        assert row["pcc"] >= MIN_PCC


def check_texts(told: dict) -> None:
    """The plain text, and a draft's cache that is calibrated."""
    logger.info("{}", told)
    found, wanted, plain = told["texts"]
    assert found == wanted == plain
    for row in told["cache"]:
        assert row["pcc"] >= MIN_PCC


def check_chains(chains: list[list[float]]) -> None:
    """Each drafted token is the reference's, or as likely but for rounding."""
    below = [gap for chain in chains for gap in chain]
    assert max(below) < NEAR_TIE and below.count(0.0) > len(below) / 2


def check_two_drafts(told: dict, dispatch: str) -> None:
    """Texts from the reference's two drafts, of which they take two tokens."""
    check_texts(told)
    assert told["counts"] == [{"num_drafts": 2, "num_accepted_tokens": 2}] * 2
    assert told["replays"] == (1 if dispatch == "fast" else 0)


@pytest.mark.sim
@pytest.mark.timeout(1800)
@DISPATCH
def test_a_draft_model_on_the_chip_drafts_trees(sim_device, dispatch):
    """Two candidates a node: a chain of first candidates has one token less accepted in a round more."""
    told = sim_device("2x1", dispatch=dispatch).run(
        texts_by_a_draft_model, [prompt(12, 20)], 6, 2, width=2, timeout=LIMIT_S
    )
    check_two_drafts(told, dispatch)


@pytest.mark.sim
@pytest.mark.timeout(1800)
@DISPATCH
def test_a_model_drafts_for_itself(sim_device, dispatch):
    """Over 64 to 95 of up to 101 cached tokens, without a cache of its own: what it wrote there is overwritten."""
    told = sim_device("2x1", dispatch=dispatch).run(texts_by_itself, [prompt(97, 77)], 5, 2, 32, timeout=LIMIT_S)
    check_two_drafts(told, dispatch)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(1800)
@DISPATCH
def test_a_layer_parallel_draft_on_one_chip_runs_the_same_mathematics(sim_device, dispatch):
    """Two layers read the same input: the chains are the reference's layer-parallel ones, the text is the plain one,
    and the cache is calibrated to a plain pass's."""
    told = sim_device("2x1", dispatch=dispatch).run(
        texts_by_a_draft_model, [prompt(12, 21)], 5, 2, [[0, 1]], timeout=LIMIT_S
    )
    check_texts(told)
    check_chains(told["chains"])
    # Sequential drafts of the same weights would all be accepted.
    counts = told["counts"][0]
    assert counts["num_drafts"] == len(told["chains"]) == 2 and 0 < counts["num_accepted_tokens"] < 4
