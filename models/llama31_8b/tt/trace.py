# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps, and chunks of prompts, that are captured as a trace after their first run, and replayed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

import ttnn

from .layer import Chunk
from .model import TtLlama, overwrite

Result = TypeVar("Result")


class TracedStep(Generic[Result]):
    """Call `step`: eagerly the first time, which compiles its programs, then by a captured trace, unless eager. step:
    reads and writes tensors at fixed addresses and returns tensors that every replay overwrites: read them before
    another step runs. runs: calls since creation or release; replays: runs of the trace. Programs that others compile
    after the capture have it made anew: their kernels and semaphores may be where the trace writes."""

    def __init__(self, mesh: ttnn.MeshDevice, step: Callable[[], Result], eager: bool) -> None:
        self.mesh, self.step, self.eager = mesh, step, eager
        self.runs = self.replays = 0
        self._recorded: tuple[int, Result] | None = None
        self._programs = 0  # that were compiled at the capture

    def __call__(self) -> Result:
        self.refresh()
        self.runs += 1
        if self.eager or self.runs == 1:
            return self.step()
        if self._recorded is None:
            self._recorded = _capture(self.mesh, self.step)
            self._programs = self.mesh.num_program_cache_entries()
        trace, output = self._recorded
        ttnn.execute_trace(self.mesh, trace, cq_id=0, blocking=False)
        self.replays += 1
        return output

    def refresh(self) -> None:
        """Release the trace if programs were compiled since its capture."""
        if self._recorded is not None and self.mesh.num_program_cache_entries() != self._programs:
            self.release()

    def release(self) -> None:
        """Release the trace; the step can be called again, starting with its first eager run."""
        if self._recorded is not None:
            ttnn.release_trace(self.mesh, self._recorded[0])
        self._recorded, self.runs = None, 0


class TracedPrefill:
    """Cache chunks of prompts as TtLlama.prefill does: those of `rows` tokens, padding included, by a trace that the
    second of them captures. Others run eagerly, with `eager` all do.

    Until `close` a trace may be held; lasting tensors must not be where it writes. Logits of a trace are overwritten by
    its next replay.
    """

    def __init__(self, model: TtLlama, rows: int, eager: bool) -> None:
        self.model, self._rows = model, rows
        self._chunk: Chunk | None = None if eager or rows > model.capacity else model.chunk([0] * rows, 0, 0)
        self._steps: dict[tuple[bool, bool], TracedStep[ttnn.Tensor | None]] = {}

    def __call__(
        self, tokens: Sequence[int], user: int, start: int, last: bool, gather_logits: bool = True
    ) -> ttnn.Tensor | None:
        model, held = self.model, self._chunk
        if held is None or model.chunk_rows(len(tokens), start) != self._rows:
            return model.prefill(tokens, user, start, last=last, gather_logits=gather_logits)
        overwrite(held.tensors, model.chunk(tokens, user, start, on_device=False).tensors)
        kind = last, gather_logits
        if kind not in self._steps:
            self._steps[kind] = TracedStep(model.mesh, partial(model.cache_chunk, held, *kind), eager=False)
        return self._steps[kind]()

    @property
    def traces(self) -> bool:
        """Return whether chunks of `rows` tokens are traced."""
        return self._chunk is not None

    @property
    def replays(self) -> int:
        """Return how many chunks replayed a trace."""
        return sum(step.replays for step in self._steps.values())

    def close(self) -> None:
        for step in self._steps.values():
            step.release()


def _capture(mesh: ttnn.MeshDevice, step: Callable[[], Result]) -> tuple[int, Result]:
    """Capture `step` and return the trace and step's result. Runs nothing."""
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    try:
        output = step()
    except BaseException:
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        ttnn.release_trace(mesh, trace)
        raise
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    return trace, output


class Mark:
    """A point between launches of one queue; `passed` waits until the chips are there."""

    def __init__(self, mesh: ttnn.MeshDevice) -> None:
        # With slow dispatch a launch returns when its program has ended.
        self._event = None if slow_dispatch() else ttnn.record_event(mesh, 0)
        self._made = time.perf_counter()

    def passed(self) -> float:
        """Return time.perf_counter() at that point, in seconds."""
        if self._event is None:
            return self._made
        ttnn.event_synchronize(self._event)
        return time.perf_counter()


def slow_dispatch() -> bool:
    """Return whether programs are launched one by one, which has neither events nor traces."""
    return os.environ.get("TT_METAL_SLOW_DISPATCH_MODE") == "1"


def why_no_trace(mesh: ttnn.MeshDevice) -> str | None:
    """Return why steps on this mesh run eagerly, None if traces can be captured."""
    if slow_dispatch():
        return "slow dispatch (TT_METAL_SLOW_DISPATCH_MODE=1) replays no traces"
    if not ttnn.get_memory_view(mesh, ttnn.BufferType.TRACE).total_bytes_per_bank:
        return "the mesh was opened without a trace region"
    return None
