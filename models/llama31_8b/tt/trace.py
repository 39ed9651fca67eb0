# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A step that is captured as a trace after its first run, and replayed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import ttnn

Result = TypeVar("Result")


class TracedStep(Generic[Result]):
    """Call `step`: eagerly the first time, which compiles its programs, then by a captured trace, unless eager. step:
    reads and writes tensors at fixed addresses and returns tensors that every replay overwrites: read them before
    another step runs. runs: calls since creation or release; replays: runs of the trace."""

    def __init__(self, mesh: ttnn.MeshDevice, step: Callable[[], Result], eager: bool) -> None:
        self.mesh, self.step, self.eager = mesh, step, eager
        self.runs = self.replays = 0
        self._recorded: tuple[int, Result] | None = None

    def __call__(self) -> Result:
        self.runs += 1
        if self.eager or self.runs == 1:
            return self.step()
        if self._recorded is None:
            self._recorded = _capture(self.mesh, self.step)
        trace, output = self._recorded
        ttnn.execute_trace(self.mesh, trace, cq_id=0, blocking=False)
        self.replays += 1
        return output

    @property
    def warm(self) -> bool:
        """Return whether the last call compiled and captured nothing."""
        return self.runs > (1 if self.eager else 2)

    @property
    def recorded(self) -> bool:
        """Return whether a trace is held; lasting tensors must not be where it writes."""
        return self._recorded is not None

    def release(self) -> None:
        """Release the trace; the step can be called again, starting with its first eager run."""
        if self._recorded is not None:
            ttnn.release_trace(self.mesh, self._recorded[0])
        self._recorded, self.runs = None, 0


@contextmanager
def watch_programs(mesh: ttnn.MeshDevice, steps: Iterable[TracedStep[Any]]) -> Iterator[None]:
    """Release the recorded traces of `steps` if what runs meanwhile compiles new programs: their kernels and semaphores
    may be where a trace writes."""
    recorded = [step for step in steps if step.recorded]
    if not recorded:
        yield
        return
    before = mesh.num_program_cache_entries()
    try:
        yield
    finally:
        if mesh.num_program_cache_entries() != before:
            for step in recorded:
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
