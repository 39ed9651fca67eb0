# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tell when each program ran on each chip, replays of traces included: every core's firmware notes its programs.

`cycles.py` counts one program at a time, from outside; here many follow one another without the host. BRISC's firmware
appends the program's number, which the host has given it, and the wall clock at its start and end to a tensor in the
core's L1. Clocks of the chips of a simulated mesh are comparable.

The runtime must be built with :func:`timeline_overlays` and started with :data:`TIMELINE_VARIABLES`.

    timeline = Timeline(mesh, programs=500)
    timeline.start()
    ttnn.execute_trace(mesh, trace, blocking=True)
    spans = timeline.stop()          # by chip: [ProgramSpan]
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runtime_patches.board.runtime_root import find_ttnn_dir

FIRMWARE = "tt_metal/hw/firmware/src/tt-1xx/brisc.cc"
ADDED_HEADER = "tt_metal/hw/inc/internal/program_timeline.hpp"
# The firmware in the wheel was compiled without it; the cost model is the simulator's.
TIMELINE_VARIABLES = {"TT_METAL_DISABLE_PRECOMPILED_FW": "1", "TT_SIM_COST_MODEL": "1"}

_HERE = Path(__file__).resolve().parent
_INCLUDE = '#include "api/debug/kernel_profiler.hpp"\n'
_NUMBER = "DeviceZoneSetCounter(launch_msg_address->kernel_config.host_assigned_id);\n"
_ENTRY = (
    "timeline::Entry timeline_entry(launch_msg_address->kernel_config.host_assigned_id, "
    "launch_msg_address->kernel_config.enables);\n"
)
_MAGIC = 0x714E11E5
_WORDS_PER_ENTRY = 4
_CLOCK_PERIOD = 1 << 32


@dataclass(frozen=True)
class ProgramSpan:
    """One run of a program on one chip. number: the host's, rising in the order of launches. start: of its first core's
    go message; end: when its last core was done; both in cycles since `Timeline.start`."""

    number: int
    start: int
    end: int
    cores: int


def timeline_overlays() -> dict[str, bytes]:
    """Return files for a runtime root (see board/runtime_root.py) whose firmware notes its programs.

    Errors: ValueError when the installed firmware is not the one this was made for.
    """
    stock = (find_ttnn_dir() / FIRMWARE).read_text()
    for anchor in (_INCLUDE, _NUMBER):
        if stock.count(anchor) != 1:
            raise ValueError(f"{FIRMWARE} holds {anchor.strip()!r} {stock.count(anchor)} times, not once")
    text = stock.replace(_INCLUDE, _INCLUDE + '#include "internal/program_timeline.hpp"\n')
    return {
        FIRMWARE: text.replace(_NUMBER, _NUMBER + _ENTRY).encode(),
        ADDED_HEADER: (_HERE / "timeline.hpp").read_bytes(),
    }


class Timeline:
    """Record programs. programs: how many runs a core can note; later ones are lost, and `stop` says so."""

    def __init__(self, mesh, programs: int = 512):
        import ttnn

        size = mesh.compute_with_storage_grid_size()
        self.mesh, self.programs, self._count = mesh, programs, size.x * size.y
        self._cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(size.x - 1, size.y - 1))])
        shard = ttnn.ShardSpec(self._cores, [1, programs * _WORDS_PER_ENTRY], ttnn.ShardOrientation.ROW_MAJOR)
        memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, shard)
        self._tensor = self._blank(device=mesh, memory_config=memory)

    def _blank(self, **place):
        """Return entries of zeros, on the host or in a place of the device."""
        import torch
        import ttnn

        words = torch.zeros(1, 1, self._count, self.programs * _WORDS_PER_ENTRY, dtype=torch.int32)
        mapper = ttnn.ReplicateTensorToMesh(self.mesh)
        return ttnn.from_torch(words, ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, mesh_mapper=mapper, **place)

    def start(self) -> None:
        """Note what is launched from now on."""
        import ttnn

        ttnn.copy_host_to_device_tensor(self._blank(), self._tensor)
        self._arm(self.programs)

    def stop(self) -> list[list[ProgramSpan]]:
        """Return what ran since `start`: chips in row-major order, each by number and then by start; a program launched
        again has a span for each run. Errors: RuntimeError when a core could not note all."""
        import ttnn

        ttnn.synchronize_device(self.mesh)
        self._arm(0)
        chips = [
            ttnn.to_torch(part).reshape(self._count, self.programs, _WORDS_PER_ENTRY).tolist()
            for part in ttnn.get_device_tensors(self._tensor)
        ]
        if any(core[-1][2] for chip in chips for core in chip):
            raise RuntimeError(f"a core ran {self.programs} programs or more: give programs= more")
        return spans_of(chips)

    def _arm(self, capacity: int) -> None:
        import ttnn

        kernel = ttnn.KernelDescriptor(
            kernel_source=str(_HERE / "timeline_arm.cpp"),
            core_ranges=self._cores,
            common_runtime_args=[self._tensor.buffer_address(), capacity, _MAGIC],
            defines=[("SGDC_UNGATED", "1")],
            config=ttnn.WriterConfigDescriptor(),
        )
        program = ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=[])
        ttnn.generic_op([self._tensor, self._tensor], program)


def spans_of(chips: list[list[list[list[int]]]]) -> list[list[ProgramSpan]]:
    """Return spans from the words of each chip's cores ([chips][cores][entries][4]), without the entry of the arming
    program.

    The n-th run of a number on each core belongs to the n-th run of the program.
    """
    words = [
        [[[int(w) % _CLOCK_PERIOD for w in entry] for entry in core if entry[2]] for core in chip] for chip in chips
    ]
    arming = words[0][0][0][0]
    starts = [entry[1] for chip in words for core in chip for entry in core if entry[0] != arming]
    origin = min(starts, default=0)
    found = []
    for chip in words:
        runs: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for core in chip:
            seen: dict[int, int] = {}
            for number, start, end, _ in core:
                if number == arming:
                    continue
                turn = seen[number] = seen.get(number, -1) + 1
                runs.setdefault((number, turn), []).append((start - origin, end - origin))
        spans = [
            ProgramSpan(number, min(s for s, _ in parts), max(e for _, e in parts), len(parts))
            for (number, _), parts in runs.items()
        ]
        found.append(sorted(spans, key=lambda span: (span.number, span.start)))
    return found
