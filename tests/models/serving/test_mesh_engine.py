# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter on simulated chips: continuous batching with traces, sampling on the chips, and steps that overlap."""

from __future__ import annotations

import random

import pytest

from .plugin_side import drawn_request
from .serving_programs import served

pytestmark = pytest.mark.timeout(1500)


@pytest.mark.sim
def test_requests_that_come_and_go_get_the_text_they_have_alone(sim_device):
    draw = random.Random(1)
    requests = [drawn_request(n, draw, vocab=96, longest=40) for n in range(5)]
    found = sim_device("2x2", dispatch="fast").run(served, requests, 3, 1, timeout=1400)
    assert found["together"] == found["alone"]
    assert max(found["sizes"]) > 1
    assert found["replays"]["drawn"] > 0 and found["replays"]["greedy"] > 0 and found["replays"]["logits"] <= 1
