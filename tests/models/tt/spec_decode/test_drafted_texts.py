# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token-level speculation on simulated chips: texts of 24 tokens by every drafter, on one chip and on a row of two,
against plain decoding and the reference's loop; test_tree_generator.py has shorter ones and their traces."""

from __future__ import annotations

import pytest
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams
from tests.models.tt.spec_decode.tree_programs import texts, texts_by_a_draft_model, texts_by_itself
from tests.support.tt_tolerances import GRID, MIN_PCC, NEAR_TIE, prompt, repeating

TOKENS, LENGTH, WINDOW = 24, 4, 32
LIMIT_S = 5300
# A reduction over the two chips of a row wants eight cores.
MESHES = {"chip": None, "row": (1, 2)}

pytestmark = [pytest.mark.sim, pytest.mark.slow, pytest.mark.timeout(5400)]


@pytest.fixture
def run_on(sim_device, sim_mesh):
    """A function's name, arguments -> what it told on that mesh, with slow dispatch."""

    def run(mesh, body, *arguments, grid=GRID, **named):
        if MESHES[mesh] is None:
            worker = sim_device(grid)
        else:
            worker = sim_mesh(MESHES[mesh], "4x2")
        told = worker.run(body, *arguments, timeout=LIMIT_S, **named)
        logger.info("{}", told)
        return told

    return run


# Prompts by whose seeds no two best logits of the text lie closer than 0.06; the drafted and accepted tokens of the
# reference's loop over the same text.


@pytest.mark.parametrize("mesh, seed, accepted, drafted", [("chip", 52, 11, 19), ("row", 104, 11, 17)])
def test_by_look_up(run_on, mesh, seed, accepted, drafted):
    told = run_on(mesh, texts, [repeating(seed)], TOKENS, SamplingParams(0.0))
    assert told["found"]["texts"] == told["wanted"]["texts"] == told["plain"]
    counts = told["found"]["counts"]
    assert counts == told["wanted"]["counts"]
    assert (counts["num_accepted_tokens"], counts["num_draft_tokens"]) == (accepted, drafted)


@pytest.mark.parametrize(
    "mesh, seed, fuzzy, accepted",
    [
        pytest.param("chip", 182, None, 11, id="chip"),
        pytest.param("chip", 27, [[0, 1]], 17, id="chip-fuzzy"),
        pytest.param("row", 1, None, 10, id="row"),
        pytest.param("row", 1, [[0, 1]], 17, id="row-fuzzy"),
    ],
)
def test_by_a_draft_model(run_on, mesh, seed, fuzzy, accepted):
    """Rounds of chains that stay on the chips. Where the reference's draft has a near tie, chains may differ, and with
    them how many tokens a round accepts, but not the text."""
    told = run_on(mesh, texts_by_a_draft_model, [prompt(12, seed)], TOKENS, LENGTH, fuzzy)
    check_text(told)
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
    told = sim_mesh(MESHES["row"], "4x2", dispatch="fast").run(
        texts_by_a_draft_model, [prompt(12, 1)], tokens, 2, timeout=LIMIT_S
    )
    logger.info("{}", told)
    found, wanted, plain = told["texts"]
    assert found == wanted == plain
    # Every round gives a token beside those it accepts, and prefill the first.
    rounds = tokens - 1 - told["counts"][0]["num_accepted_tokens"]
    assert told["replays"] == rounds - 1 > 1


@pytest.mark.parametrize("mesh, seed, accepted", [("chip", 188, 15), ("row", 248, 12)])
def test_by_itself(run_on, mesh, seed, accepted):
    told = run_on(mesh, texts_by_itself, [prompt(97, seed)], TOKENS, LENGTH, WINDOW, grid="2x2")
    check_text(told)
    found, wanted = told["counts"]
    assert wanted["num_accepted_tokens"] == accepted
    assert found["num_accepted_tokens"] > 0


def check_text(told: dict) -> None:
    found, wanted, plain = told["texts"]
    assert found == wanted == plain
    assert len(found[0]) == TOKENS
    for row in told["cache"]:
        assert row["pcc"] >= MIN_PCC
