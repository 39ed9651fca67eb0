# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Exchange and gate between two connected N150: `pytest --device n150`. A mock mesh builds what they would run."""

from __future__ import annotations

import pytest

from runtime_patches import sgdc
from tests.support.sgdc_pair import USERS, draw_layers, layers_body
from tt_kernels.common import reference as common_reference


@pytest.mark.silicon
def test_roles_alternate_between_two_boards(board_mesh):
    layers = draw_layers(100)
    found, failure, sent = board_mesh((1, 2)).run(layers_body, layers)
    senders = [common_reference.sender(rows, USERS) for rows, _ in layers]
    assert failure is None
    for number, ((rows, values), sender, (held, gathered, summed)) in enumerate(
        zip(layers, senders, found, strict=True)
    ):
        value = float(values[sender])
        assert held == [[value], [value]] and gathered == [rows, rows], f"layer {number}"
        assert summed == [[0.0 if max(row) == 0 else 2 * value] for row in rows], f"layer {number}"
    assert sent == [senders.count(0), senders.count(1)] and min(sent) > 20


@pytest.mark.mock_mesh
def test_what_two_boards_would_run_builds(mock_mesh):
    """Nothing executes on a mock mesh, so what is read means nothing."""
    layers = draw_layers(2)
    found, _, sent = mock_mesh((1, 2), overlays=sgdc.overlays()).run(layers_body, layers)
    assert len(sent) == 2
    for held, gathered, summed in found:
        assert len(held) == len(summed) == 2
        assert [len(part) for part in gathered] == [2, 2]
