# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Count the cycles that each kernel of a program takes, by the wall clock register of its core.

Silicon and the simulated N150 count alike: the register counts cycles of the chip, and wolfpine's follows its cost
model. The model is deterministic and a floor (see simulated_n150/README.md): ratios between two kernels of one run mean
something, absolute figures of the simulator do not.

The runtime must be built with :func:`cycle_overlays` and started with :data:`CYCLE_VARIABLES`; then every program,
stock ops included, is counted without a change to its kernels:

    device = sim_device("1x1", overlays=cycle_overlays(), variables=CYCLE_VARIABLES)
    ...
    counts = measure(device, lambda: ttnn.add(a, b))      # in the worker
    counts[0, 0].math.cycles, counts[0, 0].program.cycles

The clocks of the chips of a simulated mesh are one clock: with fast dispatch, where chips run on their own,
:func:`measure_chips` puts the programs of several chips on one time axis.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime_patches.board.runtime_root import RuntimeRootError, find_ttnn_dir, read_manifest

HEADER = "tt_metal/hw/inc/api/debug/kernel_profiler.hpp"
ADDED_HEADER = "tt_metal/hw/inc/api/debug/kernel_cycles.hpp"
# The firmware in the wheel was compiled without the counts; the cost model is the simulator's.
CYCLE_VARIABLES = {"TT_METAL_DISABLE_PRECOMPILED_FW": "1", "TT_SIM_COST_MODEL": "1"}

_HERE = Path(__file__).resolve().parent
_SPANS = ("program", "brisc", "ncrisc", "unpack", "math", "pack")
_PAGE_BYTES = 128


@dataclass(frozen=True)
class Span:
    """Cycles between two readings of a core's clock.

    cycles: of all runs since the last collection. runs: how many. start, end: the clock's lower 32 bits at the last
    run, comparable between the cores of a chip.
    """

    cycles: int
    runs: int
    start: int
    end: int


@dataclass(frozen=True)
class CoreCycles:
    """The cycles of one Tensix core: `program` from the go message until all its RISCs were done, and each kernel that
    ran.

    None for a RISC that had no kernel. The three RISCs of a compute kernel end when the Tensix unit has done what they
    issued.
    """

    program: Span | None
    brisc: Span | None
    ncrisc: Span | None
    unpack: Span | None
    math: Span | None
    pack: Span | None

    def kernels(self) -> dict[str, Span]:
        """Return the kernels that ran on this core, by RISC."""
        return {name: span for name in _SPANS[1:] if (span := getattr(self, name)) is not None}


def cycle_overlays() -> dict[str, bytes]:
    """Return files for a runtime root (see board/runtime_root.py) whose kernels count their cycles."""
    original = (find_ttnn_dir() / HEADER).read_bytes()
    include = b'\n#include "api/debug/kernel_cycles.hpp"\n'
    return {HEADER: original + include, ADDED_HEADER: (_HERE / "cycles.hpp").read_bytes()}


def measure(device, run: Callable[[], object]) -> dict[tuple[int, int], CoreCycles]:
    """Run `run`, wait for the device, and return the cycles of the programs it launched.

    device: an open device of a process started as the module says. Returns {(x, y): CoreCycles} of the cores that ran a
    kernel. Errors: RuntimeRootError when the runtime root of this process does not count cycles; ValueError for a mesh
    of several chips.
    """
    if device.get_num_devices() != 1:
        raise ValueError(f"measure is for one chip, and these are {device.get_num_devices()}: measure_chips")
    return measure_chips([device], run)[0]


def measure_chips(devices: Sequence, run: Callable[[], object]) -> list[dict[tuple[int, int], CoreCycles]]:
    """Do as `measure` for the chips of several devices; return each mesh's chips in its own order, one mesh after the
    other.

    devices: open devices, meshes or submeshes; `run` launches programs on any of them. A mesh and a submesh of it do
    not go together, since an op of the one after an op of the other needs ``quiesce_devices`` in between.
    """
    import ttnn

    _check_root()
    collectors = [_Collector(device) for device in devices]
    for collector in collectors:
        collector.collect()  # clears what ran before
    for device in devices:
        ttnn.synchronize_device(device)
    run()
    for device in devices:
        ttnn.synchronize_device(device)
    return [_decode(pages, collector.columns) for collector in collectors for pages in collector.collect()]


def _check_root() -> None:
    root = os.environ.get("TT_METAL_RUNTIME_ROOT")
    try:
        counted = root is not None and ADDED_HEADER in read_manifest(Path(root))["overlays"]
    except RuntimeRootError:
        counted = False
    if not counted:
        raise RuntimeRootError(
            f"the kernels of the runtime root {root} do not count cycles: build it with cycle_overlays() "
            "and start the process with CYCLE_VARIABLES"
        )


class _Collector:
    """The program that copies the words of every core into a tensor, a page per core, and clears them."""

    def __init__(self, device):
        import ttnn

        size = device.compute_with_storage_grid_size()
        self.columns = columns = size.x
        rows = size.y
        shape, memory = [columns * rows, _PAGE_BYTES // 4], ttnn.DRAM_MEMORY_CONFIG
        self._tensor = ttnn.empty(shape, ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, device, memory)
        cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(columns - 1, rows - 1))])
        accessor = ttnn.TensorAccessorArgs(self._tensor).get_compile_time_args()
        arguments = ttnn.RuntimeArgs()
        for y in range(rows):
            for x in range(columns):
                arguments[x][y] = [self._tensor.buffer_address(), y * columns + x]
        kernel = ttnn.KernelDescriptor(
            kernel_source=str(_HERE / "cycles_collect.cpp"),
            core_ranges=cores,
            compile_time_args=[_PAGE_BYTES, 0, *accessor],
            # The second keeps it running where the SGDC gate is closed (runtime_patches/sgdc).
            defines=[("KERNEL_CYCLES_OFF", "1"), ("SGDC_UNGATED", "1")],
            runtime_args=arguments,
            config=ttnn.WriterConfigDescriptor(),
        )
        page = ttnn.CBFormatDescriptor(buffer_index=0, data_format=ttnn.uint32, page_size=_PAGE_BYTES)
        buffer = ttnn.CBDescriptor(total_size=_PAGE_BYTES, core_ranges=cores, format_descriptors=[page])
        self._program = ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=[buffer])

    def collect(self) -> list[list[list[int]]]:
        """Return each chip's pages, in the device's order."""
        import ttnn

        ttnn.generic_op([self._tensor, self._tensor], self._program)
        return [ttnn.to_torch(part).tolist() for part in ttnn.get_device_tensors(self._tensor)]


def _decode(pages: list[list[int]], columns: int) -> dict[tuple[int, int], CoreCycles]:
    """Return the counts of the cores that ran a kernel, from the pages of :class:`_Collector`, row by
    row of the grid."""
    found = {}
    for index, page in enumerate(pages):
        spans, words = {}, iter(int(word) & 0xFFFFFFFF for word in page)
        for name, start, end, cycles, runs in zip(_SPANS, words, words, words, words):
            spans[name] = Span(cycles, runs, start, end) if runs else None
        if any(spans[name] for name in _SPANS[1:]):
            found[index % columns, index // columns] = CoreCycles(**spans)
    return found
