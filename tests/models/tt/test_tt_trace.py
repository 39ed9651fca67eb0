# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The generator's traces on the simulated chip: captured once, replayed to the end and in a later text, which are the
eager ones."""

import pytest

from models.llama31_8b.generation.sampling import SamplingParams
from tests.models.tt.trace_programs import texts, why_eager
from tests.support.tt_tolerances import GRID, prompt

GREEDY, DRAWN = SamplingParams(0.0), SamplingParams(1.5, top_k=30, seed=5)


@pytest.mark.sim
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("params", "replays", "fewest"),
    [(GREEDY, 2, 1), pytest.param(DRAWN, 8, 3, marks=pytest.mark.slow)],
    ids=["greedy", "drawn"],
)
def test_a_step_captured_once_and_replayed_writes_the_eager_text(sim_device, params, replays, fewest):
    """Each replay has the token the one before chose, on the chip, and the next position; choosing draws a number that
    the host gives each step. A capture that fails is closed, and the generator goes on."""
    device = sim_device(GRID, dispatch="fast")
    told = device.run(texts, prompt(5, 4), replays + 2, params, timeout=1400)
    assert len(told["eager"]) == replays + 2 and len(set(told["eager"])) > fewest
    assert told["traced"] == told["eager"]
    assert told["why"] == (None, "trace=False")
    assert (told["replays"], told["eager replays"]) == (replays, 0)
    assert told["calls"] == {"begin": 1, "end": 1, "execute": replays}
    # A later call by the same sampling only replays, and draws the seed's numbers anew.
    assert told["again"] == told["eager"][:2] and told["warm up"] == 0
    assert told["again calls"] == {"execute": 1, "release": 1}
    assert told["error"] == "no room for the trace" and told["failing"] == {
        "begin": 1,
        "end": 1,
        "release": 1,
    }
    assert told["new programs"] == 0


@pytest.mark.sim
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dispatch": "slow"}, "slow dispatch"),
        ({"dispatch": "fast", "options": {"trace_region_size": 0}}, "without a trace region"),
    ],
)
def test_why_steps_run_eagerly(sim_device, on_silicon, options, reason):
    if on_silicon:
        pytest.skip("opens a device in two ways, and the board serves one")
    assert reason in sim_device(GRID, **options).run(why_eager)
