# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The generator's use of traces, in a worker (see sim_worker.py) whose chip replays none: a trace here is its steps."""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

from tests.support.tt_programs import TINY, build


class Traces:
    """Stands for ttnn's traces. While one is captured a step runs nothing, as on a board; a replay runs that step."""

    def __init__(self, fail: bool = False) -> None:
        from models.llama31_8b.tt import generator

        self.real_step, self.fail = generator._step, fail
        self.calls: list[str] = []
        self.captured = None

    def begin_trace_capture(self, mesh, cq_id):
        self.calls.append("begin")
        return 7

    def end_trace_capture(self, mesh, trace, cq_id):
        self.calls.append(f"end {trace}")

    def execute_trace(self, mesh, trace, cq_id, blocking):
        self.calls.append(f"execute {trace}")
        self.real_step(*self.captured)

    def release_trace(self, mesh, trace):
        self.calls.append(f"release {trace}")

    def step(self, model, inputs, source):
        if self.calls[-1:] != ["begin"]:
            self.calls.append("eager")
            return self.real_step(model, inputs, source)
        if self.fail:
            raise RuntimeError("no room for the trace")
        self.captured = (model, inputs, source)
        return inputs.tokens  # what a step that chooses on the chip writes


def texts(mesh, prompt: list[int], new_tokens: int) -> dict:
    """Greedy texts: eagerly, with traces pretended, and with a capture that fails; calls and replays of each. And why
    this chip has no traces."""
    import ttnn

    from models.llama31_8b.tt import generator as module

    model, _ = build(mesh, TINY.with_layers(1), capacity=64)

    def run(traces: Traces, **options) -> dict:
        names = ("begin_trace_capture", "end_trace_capture", "execute_trace", "release_trace")
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(mock.patch.object(ttnn, name, getattr(traces, name)))
            stack.enter_context(mock.patch.object(module, "_why_no_trace", lambda mesh: None))
            stack.enter_context(mock.patch.object(module, "_step", traces.step))
            generator = module.Generator(model, **options)
            try:
                found = generator.generate([prompt], max_new_tokens=new_tokens, eos_token_ids=()).token_ids
            except RuntimeError as error:
                found = str(error)
        told = {"found": found, "replays": generator.replays, "traced": generator.traced}
        return told | {"why_eager": generator.why_eager, "calls": traces.calls}

    return {
        "here": module.Generator(model).why_eager,
        "eager": run(Traces(), trace=False),
        "traced": run(Traces()),
        "failing": run(Traces(fail=True)),
    }
