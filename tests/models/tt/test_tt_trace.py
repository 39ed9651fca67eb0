# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The generator's traces on the simulated chip: captured once, replayed to the end and in a later text, which are the
eager ones."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest

from models.llama31_8b.generation.sampling import SamplingParams
from tests.support.tt_programs import GRID, SMALLEST, build, prompt


@contextmanager
def spied(refuse: bool = False) -> Iterator[dict[str, int]]:
    """Yield how often ttnn's trace functions are called, counted at the end. refuse: a step raises while it is
    captured."""
    import ttnn

    from models.llama31_8b.tt import generator

    names = ("begin_trace_capture", "end_trace_capture", "execute_trace", "release_trace")
    calls: dict[str, int] = {}
    step = generator.decode_and_choose
    with ExitStack() as stack:
        spies = {name: stack.enter_context(mock.patch.object(ttnn, name, wraps=getattr(ttnn, name))) for name in names}

        def refused(*arguments):
            output = step(*arguments)
            if spies["begin_trace_capture"].call_count > spies["end_trace_capture"].call_count:
                raise RuntimeError("no room for the trace")
            return output

        if refuse:
            stack.enter_context(mock.patch.object(generator, "decode_and_choose", refused))
        yield calls
        calls |= {name.partition("_")[0]: spy.call_count for name, spy in spies.items() if spy.called}


def texts(mesh, prompt: list[int], new_tokens: int, params) -> dict:
    """The sampled text eagerly and by a trace, and what was captured and replayed; a capture whose step fails, the
    error and what the same generator writes after it; the text's first tokens again by the trace that was kept; and a
    text whose prefill compiles new programs, by either generator."""
    from models.llama31_8b.tt.generator import Generator

    model, _ = build(mesh, SMALLEST, capacity=64)

    def run(generator, tokens, text=prompt):
        found = generator.generate([text], max_new_tokens=tokens, sampling=params, eos_token_ids=())
        return found.token_ids[0]

    generator, eager = (Generator(model, prefill_chunk=32, keep_trace=True, trace=trace) for trace in (True, False))
    told = {"eager": run(eager, new_tokens), "why": (generator.engine.why_eager, eager.engine.why_eager)}
    programs = mesh.num_program_cache_entries()
    with spied(refuse=True) as failing:
        try:
            run(generator, 3)
        except RuntimeError as error:
            told["error"] = str(error)
    with spied() as calls:
        told["traced"] = run(generator, new_tokens)
    told |= {"replays": generator.engine.replays, "eager replays": eager.engine.replays, "calls": calls}
    with spied() as calls:
        told |= {"again": run(generator, 2), "warm up": generator.warm_up_tokens}
    told |= {"again calls": calls, "failing": failing}
    told["new programs"] = mesh.num_program_cache_entries() - programs
    longer = [*prompt, *range(40)]
    with spied() as calls:
        told["longer"] = [run(generator, 3, longer)]
        generator.engine.release()
    told["longer calls"] = calls
    told["longer"].append(run(eager, 3, longer))
    return told


GREEDY, DRAWN = SamplingParams(0.0), SamplingParams(1.5, top_k=30, seed=5)


@pytest.mark.sim
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
    assert told["again calls"] == {"execute": 1}
    # What a new program keeps on the chip may lie where the trace writes: it is captured again.
    assert told["longer calls"] == {"release": 2, "begin": 1, "end": 1, "execute": 1}
    assert told["longer"][0] == told["longer"][1]
    assert told["error"] == "no room for the trace" and told["failing"] == {"begin": 1, "end": 1, "release": 1}
    assert told["new programs"] == 0
