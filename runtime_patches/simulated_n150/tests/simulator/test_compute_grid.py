# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How the server reads the compute grid that run.sh tells it."""

import pytest

from runtime_patches.simulated_n150.simulator.compute_grid import GRID_VARIABLE, compute_grid


def test_the_grid_is_read_or_refused(monkeypatch):
    monkeypatch.delenv(GRID_VARIABLE, raising=False)
    assert compute_grid() is None
    monkeypatch.setenv(GRID_VARIABLE, "4x2")
    assert compute_grid() == (4, 2)
    monkeypatch.setenv(GRID_VARIABLE, "4 by 2")
    with pytest.raises(ValueError, match="4 by 2"):
        compute_grid()
