# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""When the generator captures, replays and releases a trace, and that the text is the eager one's. Traces themselves
need a board: test_llama_8b.py."""

import pytest

from tests.support.tt_tolerances import GRID, prompt
from tests.tt.trace_programs import texts


@pytest.mark.sim
@pytest.mark.timeout(1500)
def test_the_second_step_is_captured_and_replayed_to_the_end(sim_device):
    told = sim_device(GRID).run(texts, prompt(5, 4), 3, timeout=1200)
    eager, traced, failing = (told[name] for name in ("eager", "traced", "failing"))
    assert len(eager["found"][0]) == 3 and eager["calls"] == ["eager"] * 2
    assert (eager["replays"], eager["traced"], eager["why_eager"]) == (0, False, "trace=False")
    assert traced["found"] == eager["found"]
    assert traced["calls"] == ["eager", "begin", "end 7", "execute 7", "release 7"]
    assert (traced["replays"], traced["traced"], traced["why_eager"]) == (1, True, None)
    assert failing["found"] == "no room for the trace", (
        "a failed capture is closed before anything else uses the mesh"
    )
    assert failing["calls"] == ["eager", "begin", "end 7", "release 7"] and not failing["traced"]
    assert "slow dispatch" in told["here"]
