# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps over token trees that speculate between the rows of a simulated 2x2 mesh: the chips of a row decide as one."""

from __future__ import annotations

import pytest

from tests.models.tt.decode_attention.test_speculation_rows import ROWS
from tests.models.tt.decode_attention.test_tree_speculation import ENDS, check_rounds, plan
from tests.models.tt.decode_attention.tree_rounds import RoundPlan
from tests.models.tt.decode_attention.tree_speculation_programs import tree_rounds

# Weights and prompts of two users for which the guess is rejected, then taken, and nothing is near a border.
WEIGHTS, SEED, THRESHOLD, PROMPTS, CAPACITY = 2, 118, 0.6, (75, 70), 128
HITS = [[2, 1], [0, 3]]
TAKEN = [[False], [True]]


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(2400)
def test_rows_of_two_chips_take_one_decision_per_tree(sim_mesh):
    """Each chip has half of the heads. Decisions, accepted tokens, counts and the caches of both rows are the
    reference's, as on a pair."""
    planned, taken = plan(ROWS, WEIGHTS, SEED, PROMPTS, CAPACITY, [RoundPlan(THRESHOLD, row) for row in HITS])
    assert taken == TAKEN
    told = sim_mesh((2, 2), "4x2").run(  # reduce_scatter over two links wants eight cores
        tree_rounds, ROWS, planned.state, planned.prefilled, ENDS, CAPACITY, planned.rounds, timeout=2300
    )
    check_rounds(planned, told)
