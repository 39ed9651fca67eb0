# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The generator's traces on the simulated chip: captured once, replayed to the end, the text the eager one's."""

import pytest
import torch

from models.llama31_8b.sampling import SamplingParams
from tests.support.tt_tolerances import prompt
from tests.tt.trace_programs import texts, turns, why_eager

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
    device = sim_device("1x1", dispatch="fast")
    told = device.run(texts, prompt(5, 4), replays + 2, params, timeout=1400)
    assert len(told["eager"]) == replays + 2 and len(set(told["eager"])) > fewest
    assert told["traced"] == told["eager"]
    assert told["why"] == (None, "trace=False")
    assert (told["replays"], told["eager replays"]) == (replays, 0)
    assert told["calls"] == {"begin": 1, "end": 1, "execute": replays, "release": 1}
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
    assert reason in sim_device("1x1", **options).run(why_eager)


@pytest.mark.sim
@pytest.mark.timeout(1500)
def test_a_second_turn_goes_behind_the_cached_one_and_replays_its_trace(sim_device):
    """One user keeps a block of its context, the other has none to keep. Texts, keys and values are, bit for bit, those
    of one whole prefill: nothing but the last part of a context is computed again."""
    first, more = [prompt(34, 1), prompt(5, 2)], [prompt(3, 3), prompt(4, 4)]
    told = sim_device("2x1", dispatch="fast").run(turns, first, more, 3, timeout=1400)
    assert told["held"] == [ids + text[:2] for ids, text in zip(first, told["texts"][0], strict=True)]
    assert told["prefilled"] == [(0, 32, 36 - 32 + 3), (1, 0, 7 + 4)] and told["lengths"] == [41, 13]
    assert told["texts"][1] == told["whole"] != told["texts"][0]
    assert all(torch.equal(kept, whole) for kept, whole in zip(*told["caches"], strict=True))
    # The first turn runs a step eagerly and records; the second only replays, and compiles nothing.
    assert told["calls"] == [{"begin": 1, "end": 1, "execute": 1}, {"execute": 2}]
    assert told["replays"] == [1, 2] and told["warm up"] == [4, 0]
