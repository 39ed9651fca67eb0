# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""All cores of a program start together, for benches: the host starts one after another, which takes longer than
some programs.

The kernels stay as they are; what is launched is their source behind `kernels/start_line.hpp`, in a runtime that
counts cycles (runtime_patches/cycles.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADER = "perf/kernels/start_line.hpp"
# Of the starts of all data movement kernels: they poll the clock, a few cycles apart.
MOST_APART = 64


class StartLineError(RuntimeError):
    """The kernels of a program did not start together, so its cycles say nothing."""


@contextmanager
def held_at_start_line(device) -> Iterator[None]:
    """Programs launched inside by `ttnn.generic_op`, each of one chip, start on all their cores at once."""
    import ttnn

    launch = ttnn.generic_op
    ttnn.generic_op = lambda tensors, program: launch(tensors, _held(device, program))
    try:
        yield
    finally:
        ttnn.generic_op = launch


def common_start(counts: dict) -> int:
    """When the kernels of a program held at the line started, by the 32-bit clock.

    counts: as `runtime_patches.cycles.measure` returns them. Errors: StartLineError if they did not start together.
    """
    spans = [span for cores in counts.values() for span in (cores.brisc, cores.ncrisc) if span is not None]
    offsets = [signed(span.start - spans[0].start) for span in spans]
    if max(offsets) - min(offsets) > MOST_APART:
        raise StartLineError(
            f"not measurable: kernels started {max(offsets) - min(offsets)} cycles apart, at most {MOST_APART} "
            "are allowed"
        )
    return (spans[0].start + max(offsets)) % (1 << 32)


def signed(difference: int) -> int:
    """Of two readings of a 32-bit clock; negative if the second was later."""
    return (difference + (1 << 31)) % (1 << 32) - (1 << 31)


def _held(device, program):
    """`program` with its data movement kernels behind the line, and two more semaphores."""
    import ttnn

    from tt_kernels.common.cores import core_list

    moving = (ttnn.ReaderConfigDescriptor, ttnn.WriterConfigDescriptor)
    kernels = list(program.kernels)
    held = [kernel for kernel in kernels if isinstance(kernel.config, moving)]
    cores = sorted({core for kernel in held for core in core_list(kernel.core_ranges)})
    everywhere = ttnn.CoreRangeSet(
        [ttnn.CoreRange(ttnn.CoreCoord(*core), ttnn.CoreCoord(*core)) for core in cores]
    )
    semaphores = list(program.semaphores)
    ids = [len(semaphores), len(semaphores) + 1]
    semaphores += [ttnn.SemaphoreDescriptor(id=i, core_ranges=everywhere, initial_value=0) for i in ids]
    program.semaphores = semaphores
    # The first core must have a kernel on BRISC, which lets the others go.
    writers = [kernel for kernel in held if isinstance(kernel.config, ttnn.WriterConfigDescriptor)]
    first = core_list(writers[0].core_ranges)[0]
    there = device.worker_core_from_logical_core(ttnn.CoreCoord(*first))
    count = sum(len(core_list(kernel.core_ranges)) for kernel in held)
    for kernel in held:
        common = list(kernel.common_runtime_args)
        source = Path(kernel.kernel_source).relative_to(ROOT)
        kernel.common_runtime_args = [*common, count, *first, there.x, there.y, *ids]
        kernel.defines = [*kernel.defines, ("START_LINE_ARG", str(len(common)))]
        kernel.kernel_source = f'#include "{HEADER}"\n#include "{source}"\n'
        kernel.compiler_include_paths = [str(ROOT), *kernel.compiler_include_paths]
        kernel.source_type = ttnn.KernelDescriptor.SourceType.SOURCE_CODE
    program.kernels = kernels
    return program
