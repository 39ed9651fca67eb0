# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""No op of ours uses a circular buffer that its program lacks. Each RISC-V of a core keeps the addresses of an earlier
program's buffers until a program has buffers of the same numbers: such an op writes wherever the earlier one was."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.run_op import Call, In, World, priorities, words
from tests.tt_kernels.attention import CHIP, CHOOSING, CHOOSING_AT, CHOSEN, SHORT, Case, blank_masses, chosen_tiles

KERNEL = Path(__file__).parent / "kernels" / "earlier_buffers.cpp"
BUFFERS, PAGE_BYTES, PATTERN = 32, 64, 0x5EED5EED
BELOW = 900 * 1024  # bytes of L1 below the pages, for the op's own buffers


def touched_body(device, calls: list[Call]) -> dict[tuple[int, int], list[int]]:
    """Make calls after a program that has every circular buffer on all cores; return the numbers of those in whose
    place they have written, by core."""
    import ttnn

    from tt_kernels.common.cores import all_worker_cores, core_list

    cores = core_list(all_worker_cores(device))
    world = World(device)
    found = world.put(words(torch.zeros(len(cores), 8), "uint32"))
    ttnn.generic_op([found, found], _program(cores, found, fill=True))
    for call in calls:
        world.launch(call)
    ttnn.generic_op([found, found], _program(cores, found, fill=False))
    written = ttnn.to_torch(found)[:, 0].long().tolist()
    return {
        core: [number for number in range(BUFFERS) if word >> number & 1]
        for core, word in zip(cores, written, strict=True)
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


pytestmark = pytest.mark.sim


def check_untouched(worker, calls: dict[str, Call]) -> None:
    for name, call in calls.items():
        assert worker.run(touched_body, [call], timeout=600) == {}, name


@pytest.mark.parametrize(("nodes", "workers"), [(1, 3), (8, 2)])
def test_attention(sim_device, nodes, workers):
    case, at, tiles = replace(CHOOSING, workers=workers), CHOOSING_AT, CHOSEN
    options, more = {}, {"priority": priorities(2)}
    if nodes > 1:
        case, at, tiles = Case(nodes, max_tokens=256, workers=workers, grid=(4, 1)), [150], [[[1, 3]]]
        options, more = {"guess_range": SHORT}, {}
    inputs, chosen = case.inputs(*case.random()), chosen_tiles(case, tiles)
    more |= {"chosen": chosen, "tile_masses": blank_masses(case)}
    calls = {
        "chosen, masses": case.call("speculate", inputs, at, **options, **more),
        "speculate": case.call("speculate", inputs, at, **options),
        "exact": case.call("exact", inputs, at),
    }
    if nodes == 1:
        calls["chosen alone"] = case.call("guess", inputs, at, chosen=chosen)
    check_untouched(sim_device(CHIP), calls)


def test_tile_selection_and_tree_cache(sim_device):
    masses, chosen = (words(torch.full((1, 2, words_), value), "uint32") for words_, value in ((16, 1), (8, 0)))
    select = "tt_kernels.tile_selection.op:select_tiles"
    calls = {"selection": Call(select, [masses], [chosen], words([400]), SHORT, 0.98)}
    caches, new = ([In(torch.randn(1, 2, size, 64)) for _ in range(2)] for size in (64, 8))
    prefix, path = words([30]), words([[2, 3, -1, -1, -1, -1, -1, -1]])
    calls["nodes"] = Call("tt_kernels.tree_cache.op:write_nodes", *caches, *new, prefix, 8)
    calls["path"] = Call("tt_kernels.tree_cache.op:commit_path", caches, prefix, path, 8)
    check_untouched(sim_device(CHIP), calls)
