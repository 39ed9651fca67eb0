# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a round's steps tell each other on the simulated N150, integer by integer."""

from __future__ import annotations

import pytest

from tests.kernels.draft_round.draft_round_programs import NODES, USERS, rounds

LIMIT_S = 600


@pytest.mark.sim
@pytest.mark.timeout(LIMIT_S)
def test_what_one_step_decides_is_what_the_next_one_reads(sim_device):
    """A user that was decided three tokens, one that is skipped, and one decided one token whose verification fails."""
    decided = {
        "tokens": [11, 12, 13, 0, 0] + [0] * 5 + [31, 0, 0, 0, 0],
        "cached": [40, -1, 7],
        "last": [2, 0, 0],
    }
    choices = list(range(100, 100 + USERS * NODES))
    chosen = [[201, 202, 203], [301, 302, 303], [401, 402, 403]]
    path = [-1] * NODES
    outcome = [
        [0, 2, 62, 3] + [1, 2, -1, -1, -1] + [102, 201, 62, -1, -1],
        [0, 0, 0, 1] + path + [5, -1, -1, -1, -1],
        [2, 0, 0, 0] + path + [-1] * NODES,
    ]
    told = sim_device("2x1").run(rounds, decided, choices, chosen, outcome, timeout=LIMIT_S)
    assert told["step"] == {"token": [[102, 0, 110]], "position": [43, -1, 8], "angle": [[43, 0, 8]]}
    rows = [[13, 102, 201, 301, 401], [0] * 5, [31, 110, 203, 303, 403]]
    assert told["chain"] == {
        "tokens": [sum(rows, [])],
        "prefix": [42, -1, 7],
        "angles": [[42, 43, 44, 45, 46] + [0] * 5 + [7, 8, 9, 10, 11]],
        "rows": rows,
    }
    assert told["decided"] == {
        "tokens": [[102, 201, 62, 0, 0] + [0] * 5 + [31, 0, 0, 0, 0]],
        "cached": [43, -1, 7],
        "angles": [[43, 44, 45, 46, 47] + [77] * 10],
        "last": [2, 0, 0],
    }
