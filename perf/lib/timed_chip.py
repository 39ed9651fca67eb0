# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""One simulated chip under fast dispatch that tells the cycles of every program, for benches of whole ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def timed_environment(grid: str | tuple[int, int]) -> dict[str, str]:
    """Return the environment of a process that may open a `timed_chip` of (columns, rows) or "8x8" cores."""
    from runtime_patches.profiling.timeline import TIMELINE_VARIABLES, timeline_overlays
    from runtime_patches.simulated_n150.environment import process_environment, simulated_environment

    variables = simulated_environment(grid, timeline_overlays(), dispatch="fast")
    return process_environment(variables | TIMELINE_VARIABLES)


@contextmanager
def timed_chip() -> Iterator[tuple[Any, Any]]:
    """Open and yield (the open mesh device of one chip, its Timeline)."""
    from models.llama31_8b.tt.mesh import MeshShape
    from runtime_patches.profiling.timeline import Timeline
    from runtime_patches.simulated_n150.dispatch import opening_options, program_room

    plan = MeshShape(1, 1)
    device = plan.open(**program_room(), **opening_options("fast"))
    try:
        yield device, Timeline(device)
    finally:
        plan.close(device)


def timed(timeline, launch: Callable[[], Any]) -> tuple[Any, list[int]]:
    """Return what `launch` returns, a tensor, and the cycles of each program that it launched, from its go message
    until its last core was done. Launched once before, which compiles."""
    import ttnn

    ttnn.deallocate(launch())
    timeline.start()
    output = launch()
    return output, [program.end - program.start for program in timeline.stop()[0]]
