# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Random programs under random gates on the simulated N150, against a plain model of the rules."""

from __future__ import annotations

import pytest

from runtime_patches import sgdc
from tests.tt_kernels.compute_gate.gate_model import agree, draw_script, model, script_body
from tt_kernels.compute_gate import reference

pytestmark = pytest.mark.sim


def test_random_alternations_follow_the_rules(sim_device):
    script = draw_script(12, 100)
    history, expected = model(script)
    device = sim_device("2x1", overlays=sgdc.overlays())
    assert max(history[-1][1]) <= 256, "the sums must stay exact in bfloat16"
    seen, log = device.run(script_body, script, 4, timeout=900)
    agree(seen, history)
    assert {name: getattr(log, name) for name in expected} == expected
    skipped = sum(reference.skips(row, 2) for row, ops in script if row for _ in ops)
    assert skipped > 30, "the script skips too little to prove anything"
