# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Points of a bench, measured on one simulated chip whose cores count their kernels' cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from loguru import logger

from perf.lib.measuring_process import measure_apart
from perf.lib.start_line import common_start, held_at_start_line, signed
from runtime_patches.profiling.cycles import CoreCycles


def cycles_until_end(cores: Iterable[CoreCycles], start: int) -> int:
    """Return the cycles from `start` to the end of the last kernel on `cores`; the clock is the chip's."""
    return max(signed(span.end - start) for core in cores for span in core.kernels().values())


def counted_from_start(device, launch: Callable[[], Any]) -> tuple[dict[tuple[int, int], CoreCycles], int]:
    """Run a launch whose cores all start together; return the cycles of each core, and the start."""
    from runtime_patches.profiling.cycles import measure

    def held() -> None:
        with held_at_start_line(device):
            launch()

    counts = measure(device, held)
    return counts, common_start(counts)


def cycles_of(device, launch: Callable[[], Any]) -> int:
    """Return the cycles of a launch whose cores all start together, until the last one's end."""
    counts, start = counted_from_start(device, launch)
    return cycles_until_end(counts.values(), start)


def measure_points_apart(module: str, points: Sequence[Any], grid: str, timeout_s: float) -> list[dict[str, Any]]:
    """Return what `module`'s measuring process answers for `points` (dataclasses), on a chip of `grid` cores."""
    from runtime_patches.profiling.cycles import CYCLE_VARIABLES, cycle_overlays
    from runtime_patches.simulated_n150.environment import process_environment, simulated_environment

    variables = simulated_environment(grid, cycle_overlays()) | CYCLE_VARIABLES
    asked = {"points": [asdict(point) for point in points]}
    return measure_apart(module, asked, process_environment(variables), timeout_s)


def measure_points(points: Iterable[Any], measure: Callable[[Any, Any], Any]) -> list[dict[str, Any]]:
    """Return `measure(device, point)` of each point as a dictionary, in the measuring process."""
    import ttnn

    device = ttnn.open_device(device_id=0)
    try:
        measured = []
        for point in points:
            measured.append(asdict(measure(device, point)))
            logger.info(f"{point}: {measured[-1]}")
        return measured
    finally:
        ttnn.close_device(device)
