# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Random programs under random gates on the simulated N150, against a plain model of the rules."""

from __future__ import annotations

import pytest

from runtime_patches import sgdc
from tests.tt_kernels.compute_gate.gate_model import agree, draw_script, model, script_body
from tt_kernels.compute_gate import reference

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("whole_chip", [True, False], ids=["one gate for the chip", "a gate for each core"])
def test_random_alternations_follow_the_rules(sim_device, whole_chip):
    script = draw_script(11 + whole_chip, 100, whole_chip)
    history, counts = model(script, whole_chip)
    device = sim_device("2x1", overlays=sgdc.overlays())
    assert max(history[-1][1]) <= 256, "the sums must stay exact in bfloat16"
    seen, logs = device.run(script_body, script, whole_chip, 4, timeout=900)
    agree(seen, history)
    for log, expected in zip(logs, counts, strict=False):
        assert {name: getattr(log, name) for name in expected} == expected
    skipped = sum(
        reference.skips(rows[0 if whole_chip else op.member], 2) for rows, ops in script if rows for op in ops
    )
    assert skipped > 30, "the script skips too little to prove anything"
