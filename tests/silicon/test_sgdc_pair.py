# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Exchange and gate between two connected N150: `pytest --device n150`. A mock mesh builds what they would run."""

from __future__ import annotations

import pytest

from runtime_patches import sgdc
from tests.support.sgdc_pair import check_layers, draw_layers, run_layers


@pytest.mark.silicon
def test_roles_alternate_between_two_boards(board_mesh):
    layers = draw_layers(100)
    assert min(check_layers(layers, run_layers(board_mesh((1, 2)), layers))) > 20


@pytest.mark.mock_mesh
def test_what_two_boards_would_run_builds(mock_mesh):
    """Nothing executes on a mock mesh, so what is read means nothing."""
    found = run_layers(mock_mesh((1, 2), overlays=sgdc.overlays()), draw_layers(2))
    assert all(len(each[name]) == 2 for each in found for name in ("out", "held", "sum"))
