# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The generator with and without traces, in a worker (see sim_worker.py)."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from unittest import mock

from tests.support.tt_programs import TINY, build

# One layer and one query head: a step is launches, on a chip of one core.
SMALLEST = replace(TINY.with_layers(1), num_attention_heads=1)


class Spy:
    """Counts the calls of ttnn's trace functions and lets them through; `step` runs while a trace is captured."""

    def __init__(self, step=None) -> None:
        import ttnn

        from models.llama31_8b.tt import generator

        self.calls: dict[str, int] = {}
        self._step, self._real_step, self._capturing = step, generator.decode_and_choose, False
        self._patches = [mock.patch.object(generator, "decode_and_choose", self._any_step)]
        for name in ("begin_trace_capture", "end_trace_capture", "execute_trace", "release_trace"):
            self._patches.append(mock.patch.object(ttnn, name, self._counted(name, getattr(ttnn, name))))

    def _counted(self, name, function):
        def call(*arguments, **named):
            self.calls[name.partition("_")[0]] = self.calls.get(name.partition("_")[0], 0) + 1
            self._capturing = name == "begin_trace_capture" or (self._capturing and name != "end_trace_capture")
            return function(*arguments, **named)

        return call

    def _any_step(self, *arguments):
        output = self._real_step(*arguments)
        if self._capturing and self._step is not None:
            self._step()
        return output

    def __enter__(self):
        self._stack = ExitStack()
        for patch in self._patches:
            self._stack.enter_context(patch)
        return self

    def __exit__(self, *error):
        self._stack.close()


def texts(mesh, prompt: list[int], new_tokens: int, params) -> dict:
    """The sampled text eagerly and by a trace, and what was captured and replayed; a capture whose step fails, the
    error and what the same generator writes after it; the text's first tokens again by the trace that was kept."""
    from models.llama31_8b.tt.generator import Generator

    model, _ = build(mesh, SMALLEST, capacity=64)

    def run(generator, tokens):
        found = generator.generate([prompt], max_new_tokens=tokens, sampling=params, eos_token_ids=())
        return found.token_ids[0]

    def refuse():
        raise RuntimeError("no room for the trace")

    generator, eager = (Generator(model, prefill_chunk=32, keep_trace=True, trace=trace) for trace in (True, False))
    told = {"eager": run(eager, new_tokens), "why": (generator.why_eager, eager.why_eager)}
    programs = mesh.num_program_cache_entries()
    with Spy(refuse) as failing:
        try:
            run(generator, 3)
        except RuntimeError as error:
            told["error"] = str(error)
    with Spy() as spy:
        told["traced"] = run(generator, new_tokens)
    told |= {"replays": generator.replays, "eager replays": eager.replays, "calls": spy.calls}
    with Spy() as spy:
        told |= {"again": run(generator, 2), "warm up": generator.warm_up_tokens}
        generator.release()
    told["again calls"] = spy.calls
    return told | {"failing": failing.calls, "new programs": mesh.num_program_cache_entries() - programs}


def why_eager(mesh) -> str | None:
    from models.llama31_8b.tt.trace import why_no_trace

    return why_no_trace(mesh)
