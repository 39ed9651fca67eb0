# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated chips that benches open, each in a process of its own, and the cycles of what they launch there.

ttnn reads its environment when it is imported, and a bench may need several: its module starts itself again with what
is asked, and ends with `sys.exit(answered(_work) or main())`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.llama31_8b.tt.dram_budget import DRAM_BYTES_PER_S
from perf.lib.data_file import ROOT
from perf.lib.start_line import common_start, held_at_start_line, signed

if TYPE_CHECKING:
    from runtime_patches.profiling.cycles import CoreCycles
    from runtime_patches.profiling.timeline import ProgramSpan

BYTES_PER_CYCLE = DRAM_BYTES_PER_S / 1e9  # one cycle is one nanosecond
# Cycles of a 32 x 32 x 32 product on a core: 32768 multiply-adds, 2048 per cycle and pass (4 TFLOPs per core at LoFi).
TILE_CYCLES = {"LoFi": 16, "HiFi2": 32, "HiFi3": 48, "HiFi4": 64}
_WORKER = "--worker"
# Runs a launch and returns the programs of each chip.
Timer = Callable[[Callable[[], Any]], "list[list[ProgramSpan]]"]


@dataclass(frozen=True)
class Chip:
    """What the process of a measurement opens.

    grid: columns x rows of cores. mesh: rows and columns of chips; None for one. gated: kernels start from stubs that
    know the compute gate. timed: the firmware notes the start and end of every program, under fast dispatch; else every
    core counts its kernels' cycles. library: a ttsim library that simulates the one chip, without cycles. room: of L1,
    programs in flight have as much on a single chip as on meshes, in place of ttnn's default.
    """

    grid: str
    mesh: tuple[int, int] | None = None
    gated: bool = False
    timed: bool = False
    library: Path | None = None
    room: bool = False

    @property
    def dispatch(self) -> str:
        return "fast" if self.timed or self.mesh else "slow"

    def environment(self) -> dict[str, str]:
        from runtime_patches import sgdc
        from runtime_patches.profiling.cycles import CYCLE_VARIABLES, cycle_overlays
        from runtime_patches.profiling.timeline import TIMELINE_VARIABLES, timeline_overlays
        from runtime_patches.simulated_n150.environment import process_environment, simulated_environment

        stubs = sgdc.overlays() if self.gated else {}
        if self.library is not None:
            return process_environment(simulated_environment(self.grid, stubs, library=self.library))
        clocks, variables = (
            (timeline_overlays(), TIMELINE_VARIABLES) if self.timed else (cycle_overlays(), CYCLE_VARIABLES)
        )
        simulated = simulated_environment(self.grid, {**stubs, **clocks}, mesh=self.mesh, dispatch=self.dispatch)
        return process_environment(simulated | variables)

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Yield the open device, or mesh of devices where programs are timed or chips are several."""
        import ttnn

        from models.llama31_8b.tt.mesh import MeshShape
        from runtime_patches.simulated_n150.dispatch import opening_options, program_room
        from tt_kernels.compute_gate.op import clear_compute_gate

        if self.dispatch == "slow":
            device = ttnn.open_device(device_id=0, **(program_room() if self.room else {}))
            try:
                if self.gated:
                    clear_compute_gate(device)
                yield device
            finally:
                ttnn.close_device(device)
            return
        plan = MeshShape(*self.mesh or (1, 1))
        mesh = plan.open(**program_room(), **opening_options(self.dispatch))
        try:
            yield mesh
        finally:
            plan.close(mesh)


def measure_apart(
    module: str, asked: Mapping[str, Any], environment: Mapping[str, str], timeout_s: float | None = None
) -> Any:
    """Return what `_work(**asked)` of `module` returns in a process with this environment, by way of JSON. Standard
    output, which ttnn writes to, is dropped. Raises SystemExit naming the module and how the process ended."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", module, _WORKER, str(answer), json.dumps(dict(asked))]
        try:
            done = subprocess.run(
                command, env=dict(environment), cwd=ROOT, stdout=subprocess.DEVNULL, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise SystemExit(f"the process of {module} took longer than {timeout_s:g} s") from error
        if done.returncode or not answer.exists():
            raise SystemExit(f"the process of {module} ended with status {done.returncode}")
        return json.loads(answer.read_text())


def answered(work: Callable[..., Any]) -> bool:
    """Return whether this process was started by `measure_apart`; `work` has then run, and its answer is written."""
    if sys.argv[1:2] != [_WORKER]:
        return False
    Path(sys.argv[2]).write_text(json.dumps(work(**json.loads(sys.argv[3]))))
    return True


def ttsim_library(path: str) -> Path:
    """Return the ttsim library that --simulator names. Raises ValueError with what is missing to run on it."""
    from runtime_patches.simulated_n150 import doctor
    from runtime_patches.simulated_n150.library import check_library

    if reason := doctor.why_not(doctor.LIBRARY, doctor.findings(path)):
        raise ValueError(reason)
    return check_library(path)


def counted_from_start(device, launch: Callable[[], Any]) -> tuple[dict[tuple[int, int], CoreCycles], int]:
    """Run a launch whose cores all start together; return the cycles of each core, and the start."""
    from runtime_patches.profiling.cycles import measure

    def held() -> None:
        with held_at_start_line(device):  # and not what `measure` itself launches
            launch()

    counts = measure(device, held)
    return counts, common_start(counts)


def cycles_until_end(cores: Iterable[CoreCycles], start: int) -> int:
    """Return the cycles from `start` to the end of the last kernel on `cores`, by the chip's clock, which may wrap."""
    return max(signed(span.end - start) for core in cores for span in core.kernels().values())


def cycles_of(device, launch: Callable[[], Any]) -> int:
    """Return the cycles of a launch whose cores all start together, until the last one's end."""
    counts, start = counted_from_start(device, launch)
    return cycles_until_end(counts.values(), start)


def simulated_timer(mesh) -> Timer:
    """Return the cycles of the simulator's cost model, a nanosecond each (1 GHz)."""
    from runtime_patches.profiling.timeline import Timeline

    timeline = Timeline(mesh)

    def timed(run: Callable[[], Any]) -> list[list[ProgramSpan]]:
        timeline.start()
        run()
        return timeline.stop()

    return timed


def replayed(mesh, timer: Timer, step: Callable[[], Any], labels: AbstractContextManager) -> list[list[ProgramSpan]]:
    """Return the programs of each chip of a compiled step, as it is captured, replayed and timed. labels: entered while
    it is captured."""
    import ttnn

    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    with labels:
        kept = step()  # what the trace writes must not be given to others before it ran
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    chips = timer(lambda: ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True))
    ttnn.release_trace(mesh, trace)
    del kept
    return chips


def timed_launch(timeline, launch: Callable[[], Any]) -> tuple[Any, list[int]]:
    """Return what `launch` returns, a tensor, and the cycles of each program that it launched, from its go message
    until its last core was done. It is launched once before, which compiles."""
    import ttnn

    ttnn.deallocate(launch())
    timeline.start()
    output = launch()
    return output, [program.end - program.start for program in timeline.stop()[0]]


def timed_once(device, launch: Callable[[], Any]) -> tuple[Any, int]:
    """Return what `launch` returns, and the cycles of the programs that it launches, for the first time too."""
    from runtime_patches.profiling.timeline import Timeline

    timeline = Timeline(device)
    timeline.start()
    result = launch()
    return result, sum(program.end - program.start for program in timeline.stop()[0])


def one_after_the_other(spans: Iterable[tuple[float, float]]) -> list[tuple[Any, Any]]:
    """Return (start, length) of each program of a chip, given its start and end, from the end of those before it.

    Cores that the program before does not use have their go message early, and wait for it: what a program adds begins
    where those before it end.
    """
    found, end = [], 0.0
    for begin, done in spans:
        start = min(max(begin, end), done)
        found.append((start, done - start))
        end = max(end, done)
    return found


def of_roofline(read: int, cycles: float) -> float | None:
    """Return the share of the time that 288 GB/s take for `read` bytes, None for an op that reads none."""
    return read / (cycles * BYTES_PER_CYCLE) if read else None
