# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Circular buffers of an earlier program: each RISC-V of a core keeps their addresses until a program has buffers of
the same numbers. An op that uses one which its own program lacks writes wherever the earlier one was."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.support.run_op import Call, World

KERNEL = Path(__file__).parent / "kernels" / "earlier_buffers.cpp"
BUFFERS, PAGE_BYTES, PATTERN = 32, 64, 0x5EED5EED
BELOW = 900 * 1024  # bytes of L1 below the pages, for the op's own buffers


def touched_body(device, calls: list[Call]) -> dict[tuple[int, int], list[int]]:
    """Make calls after a program that has every circular buffer on all cores; return the numbers of those in whose
    place they have written, by core."""
    import ttnn

    from tt_kernels.common.cores import all_worker_cores, core_list

    cores = core_list(all_worker_cores(device))
    found = ttnn.from_torch(
        torch.zeros(len(cores), 8, dtype=torch.int32),
        dtype=ttnn.uint32,
        layout=ttnn.ROW_MAJOR_LAYOUT,
        device=device,
    )
    ttnn.generic_op([found, found], _program(cores, found, fill=True))
    world = World(device)
    for call in calls:
        world.launch(call)
    ttnn.generic_op([found, found], _program(cores, found, fill=False))
    words = ttnn.to_torch(found)[:, 0].long().tolist()
    return {
        core: [number for number in range(BUFFERS) if word >> number & 1]
        for core, word in zip(cores, words, strict=True)
        if word & 0xFFFFFFFF
    }


def _program(cores, found, fill: bool):
    import ttnn

    from tt_kernels.common.cores import core_set
    from tt_kernels.common.kernel import kernel_descriptor

    on = core_set(*cores)
    buffers = []
    for number in range(BUFFERS):
        page = ttnn.CBFormatDescriptor(buffer_index=number, data_format=ttnn.uint32, page_size=PAGE_BYTES)
        size = BELOW if number == 0 else PAGE_BYTES
        buffers.append(ttnn.CBDescriptor(total_size=size, core_ranges=on, format_descriptors=[page]))
    checker = kernel_descriptor(
        KERNEL,
        ttnn.WriterConfigDescriptor(),
        constants={"buffers": BUFFERS, "page_bytes": PAGE_BYTES, "pattern": PATTERN},
        accessors={"found": found},
        common={"fill": int(fill)},
        per_core={core: {"found": found.buffer_address(), "page": page} for page, core in enumerate(cores)},
        defines=[("ARGUMENTS", "1")],
    )
    others = [
        kernel_descriptor(KERNEL, config, cores=on)
        for config in (ttnn.ReaderConfigDescriptor(), ttnn.ComputeConfigDescriptor())
    ]
    return ttnn.ProgramDescriptor(kernels=[checker, *others], semaphores=[], cbs=buffers)
