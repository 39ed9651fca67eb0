# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Two rows of two N150 decide over all heads: `pytest --device n150`."""

from __future__ import annotations

import pytest

from tests.tt_kernels.attention_mesh import check_two_rows


@pytest.mark.silicon
def test_two_rows_of_boards_decide_over_all_heads(board_mesh):
    check_two_rows(board_mesh((2, 2)))
