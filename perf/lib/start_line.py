# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""All cores of a program start together, for benches: the host starts one after another, which takes longer than
some programs.

The kernels stay as they are; what is launched is their source after `kernels/start_line.hpp`, in a runtime that
counts cycles (runtime_patches/profiling/cycles.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from perf.lib.data_file import ROOT
from tt_kernels.common.cores import all_worker_cores, core_list, noc_core_of

HEADER = "perf/ops/kernels/start_line.hpp"
_LINE_WORDS = 16
# Of the starts of all data movement kernels: they look at the clock every few cycles.
MOST_APART = 64


class StartLineError(RuntimeError):
    """The kernels of a program did not start together, so its cycles say nothing."""


@contextmanager
def held_at_start_line(device) -> Iterator[None]:
    """Let programs launched inside by `ttnn.generic_op`, each of one chip, start on all their cores at once."""
    import ttnn

    launch = ttnn.generic_op

    def held(tensors, program):
        words = _words(device)
        launch(tensors, _held(device, program, words.buffer_address()))
        ttnn.synchronize_device(device)  # before the words are freed

    with mock.patch.object(ttnn, "generic_op", held):
        yield


def common_start(counts: dict) -> int:
    """Return when the kernels of a program held at the line started, by the 32-bit clock.

    counts: as `runtime_patches.profiling.cycles.measure` returns them. Raises StartLineError if they did not start
    together.
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
    """Return the difference of two readings of a 32-bit clock; negative if the second was later."""
    return (difference + (1 << 31)) % (1 << 32) - (1 << 31)


def _words(device):
    """Return a line of zeros in the L1 of every core, at the same address: Words of start_line.hpp."""
    import torch
    import ttnn

    cores = all_worker_cores(device)
    shard = ttnn.ShardSpec(cores, [1, _LINE_WORDS], ttnn.ShardOrientation.ROW_MAJOR)
    memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, shard)
    zeros = torch.zeros(1, 1, cores.num_cores(), _LINE_WORDS, dtype=torch.int32)
    return ttnn.from_torch(zeros, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device, memory_config=memory)


def _held(device, program, words: int):
    """Return `program` with its kernels after the start line; words: the address of `_words`."""
    import ttnn

    kernels = list(program.kernels)
    moving = [k for k in kernels if isinstance(k.config, (ttnn.ReaderConfigDescriptor, ttnn.WriterConfigDescriptor))]
    # The first core must have a kernel on BRISC, which lets the others go.
    writer = next(k for k in moving if isinstance(k.config, ttnn.WriterConfigDescriptor))
    first = core_list(writer.core_ranges)[0]
    cores = [first, *sorted({core for k in moving for core in core_list(k.core_ranges)} - {first})]
    noc_core = noc_core_of(device)
    arguments = [sum(len(core_list(k.core_ranges)) for k in moving), len(cores), words]
    arguments += [part for core in cores for part in noc_core(core)]
    for kernel in kernels:
        common, source = list(kernel.common_runtime_args), Path(kernel.kernel_source)
        kernel.common_runtime_args = common + arguments
        kernel.defines = [*kernel.defines, ("START_LINE_ARG", str(len(common)))]
        kernel.compiler_include_paths = [str(ROOT), str(source.parent), *kernel.compiler_include_paths]
        kernel.kernel_source = f'#include "{HEADER}"\n{source.read_text()}'
        kernel.source_type = ttnn.KernelDescriptor.SourceType.SOURCE_CODE
    program.kernels = kernels
    return program
