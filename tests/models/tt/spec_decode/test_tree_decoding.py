# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token trees verified in one step of the TT-NN model on simulated chips, against the reference."""

from __future__ import annotations

import pytest
from loguru import logger

from tests.models.tt.parallel_programs import CONFIG
from tests.models.tt.spec_decode.tree_programs import rounds
from tests.support.tt_tolerances import GRID, MIN_PCC, prompt

LEAST_GAP, MAX_ERROR = 0.02, 0.15
# Right tokens of the trees of two users by round: a whole path, none, some.
HITS = [[3, 1], [0, 2]]
HITS_OF_A_ROW = [[2]]


def check_rounds(told: dict, hits: list[list[int]]) -> None:
    assert told["gap"] > LEAST_GAP, "the prompts were chosen so that no two best logits lie close"
    for row in told["rounds"]:
        for found in row:
            logger.info("{}", found)
            assert found["pcc"] >= MIN_PCC and found["absolute"] < MAX_ERROR
    for user, text in enumerate(told["texts"]):
        rows = [row[user] for row in told["rounds"]]
        assert [len(found["path"]) for found in rows] == [row[user] for row in hits]
        made = [token for found in rows for token in found["tokens"]]
        # The first of the text is the first tree's root; each round adds accepted nodes and the token behind them.
        assert made == text[1 : 1 + len(made)] and len(made) == sum(row[user] + 1 for row in hits)
    for row in told["cache"]:
        logger.info("cache: {}", row)
        assert row["pcc"] >= MIN_PCC


@pytest.mark.sim
@pytest.mark.timeout(1500)
def test_rounds_of_trees_give_the_plain_greedy_text(sim_device):
    """Two users with prefixes of 30 and 12 tokens: the first's trees cross a tile; accepted paths are no prefix of the
    tree, so keys and values move."""
    told = sim_device(GRID).run(rounds, [prompt(30, 11), prompt(12, 10)], HITS, timeout=1400)
    check_rounds(told, HITS)
    assert {tuple(found["path"]) for row in told["rounds"] for found in row} == {(), (3,), (3, 5), (3, 5, 6)}


@pytest.mark.sim
@pytest.mark.timeout(3000)
def test_two_chips_of_a_row_share_the_heads_of_a_tree(sim_mesh):
    told = sim_mesh((1, 2), "4x2").run(rounds, [prompt(20, 17)], HITS_OF_A_ROW, CONFIG, timeout=2900)
    check_rounds(told, HITS_OF_A_ROW)
