# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Two rows of two N150 decide over all heads: `pytest --device n150`."""

from __future__ import annotations

import pytest

from tests.tt_kernels.speculative_flash_decode.flash_decode_mesh import MeshCall, mesh_body
from tests.tt_kernels.speculative_flash_decode.flash_decode_tp import (
    CASE,
    PATIENCE_S,
    POSITIONS,
    check_both_groups,
    inputs,
    priorities_told,
    thresholds_between,
)
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS, YIELDED


@pytest.mark.silicon
def test_two_rows_of_boards_decide_over_all_heads(board_mesh):
    low, high = thresholds_between(CASE, POSITIONS)
    calls = [
        MeshCall(POSITIONS, high, priorities_told(HOLDS_EXACT, YIELDED)),
        MeshCall(POSITIONS, low, priorities_told(YIELDED, HOLDS_GUESS)),
        MeshCall(POSITIONS, high, priorities_told(HOLDS_GUESS, HOLDS_EXACT)),
    ]
    results = board_mesh((2, 2)).run(mesh_body, CASE, *inputs(), calls, PATIENCE_S)
    decided = [
        check_both_groups(found, call, sender) for call, found, sender in zip(calls, results, (0, 1, 1), strict=True)
    ]
    assert [outcome[0] for outcome in decided] == [YIELDED, HOLDS_EXACT, YIELDED]
