# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Cycle counts: which kernels are counted, and that twice the work costs about twice the cycles."""

import re

import pytest
import torch

from runtime_patches import sgdc
from runtime_patches.board.runtime_root import merge_overlays
from runtime_patches.profiling.cycles import CYCLE_VARIABLES, cycle_overlays

TILE = 32

# Reads `n` pages of the input from DRAM into one place of L1 and copies that to the output.
READER = """
#include <cstdint>
#include "api/dataflow/dataflow_api.h"
void kernel_main() {
    constexpr uint32_t page = get_compile_time_arg_val(0);
    constexpr auto layout = TensorAccessorArgs<1>();
    const auto input = TensorAccessor(layout, get_arg_val<uint32_t>(0), page);
    const uint32_t n = get_arg_val<uint32_t>(1);
    for (uint32_t i = 0; i < n; ++i) {
        noc_async_read(input.get_noc_addr(i), get_write_ptr(0), page);
        noc_async_read_barrier();
    }
}
"""


def add_tiles(device, tiles: int) -> tuple[dict, torch.Tensor]:
    """Stock ttnn.add over `tiles` tiles; its counts and result."""
    import ttnn

    from runtime_patches.profiling.cycles import measure

    x = torch.arange(tiles * TILE * TILE).reshape(TILE, tiles * TILE).remainder(251).bfloat16()
    on_device = ttnn.from_torch(x, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    results = []
    ttnn.add(on_device, on_device)  # compiles
    counts = measure(device, lambda: results.append(ttnn.add(on_device, on_device)))
    return counts, ttnn.to_torch(results[0])


def read_pages(device, counts: list[int], twice: bool) -> list[dict]:
    """A program of one reader on BRISC of core (0, 0), for each number of pages; its cycle counts."""
    import ttnn

    from runtime_patches.profiling.cycles import measure

    page = 2048
    source = ttnn.empty([max(counts), page // 4], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
    core = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(0, 0))])

    def launch(n: int):
        arguments = ttnn.RuntimeArgs()
        arguments[0][0] = [source.buffer_address(), n]
        kernel = ttnn.KernelDescriptor(
            kernel_source=READER,
            source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE,
            core_ranges=core,
            compile_time_args=[page, *ttnn.TensorAccessorArgs(source).get_compile_time_args()],
            runtime_args=arguments,
            config=ttnn.WriterConfigDescriptor(),
        )
        cb = ttnn.CBFormatDescriptor(buffer_index=0, data_format=ttnn.uint32, page_size=page)
        buffer = ttnn.CBDescriptor(total_size=page, core_ranges=core, format_descriptors=[cb])
        ttnn.generic_op([source, source], ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=[buffer]))

    def work(n: int):
        launch(n)
        if twice:
            launch(n)

    launch(1)  # compiles
    return [measure(device, lambda n=n: work(n)) for n in counts]


def idle(device) -> dict:
    from runtime_patches.profiling.cycles import measure

    return measure(device, lambda: None)


@pytest.fixture
def counting(sim_device):
    """A simulated chip (or the board) whose kernels count their cycles."""
    return lambda grid="1x1": sim_device(grid, overlays=cycle_overlays(), variables=CYCLE_VARIABLES)


@pytest.mark.sim
def test_every_kernel_of_a_stock_op_is_counted(counting):
    counts, result = counting().run(add_tiles, 4)
    expected = torch.arange(4 * TILE * TILE).reshape(TILE, 4 * TILE).remainder(251).bfloat16()
    assert torch.equal(result, expected + expected), "counting does not change results"
    core = counts[0, 0]
    assert set(core.kernels()) == {"brisc", "ncrisc", "unpack", "math", "pack"}
    assert core.program.runs == 1 and all(span.runs == 1 and span.cycles > 0 for span in core.kernels().values())
    for span in core.kernels().values():
        assert span.cycles == span.end - span.start <= core.program.cycles
        assert core.program.start <= span.start and span.end <= core.program.end


@pytest.mark.sim
def test_twice_the_work_costs_twice_the_cycles(counting, record_property):
    device = counting()
    one, two, four = device.run(read_pages, [32, 64, 128], False)
    spans = [c[0, 0].kernels() for c in (one, two, four)]
    assert all(set(s) == {"brisc"} for s in spans), "only the RISC that had a kernel is counted"
    cycles = [s["brisc"].cycles for s in spans]
    record_property("cycles", cycles)
    assert 1.8 < cycles[1] / cycles[0] < 2.2, cycles
    assert 1.8 < cycles[2] / cycles[1] < 2.2, cycles


@pytest.mark.sim
def test_runs_add_up_and_collecting_clears(counting):
    device = counting()
    [once], [twice] = device.run(read_pages, [32], False), device.run(read_pages, [32], True)
    assert (once[0, 0].brisc.runs, twice[0, 0].brisc.runs) == (1, 2)
    assert 1.8 < twice[0, 0].brisc.cycles / once[0, 0].brisc.cycles < 2.2
    assert device.run(idle) == {}, "no kernel ran since the last collection"


@pytest.mark.sim
def test_a_root_without_counts_is_refused(sim_device, on_silicon):
    with pytest.raises(RuntimeError, match="do not count cycles.*cycle_overlays"):
        sim_device("1x1").run(idle)


def test_counts_and_the_sgdc_patch_go_together():
    """One root may hold both: they replace different files, and their L1 words are apart."""
    both = merge_overlays(cycles=cycle_overlays(), sgdc=sgdc.overlays())
    assert len(both) == len(cycle_overlays()) + len(sgdc.overlays())
    debug_region, counts_end = 1024, 512 + (6 * 4 + 1) * 4
    gate_size = int(re.search(rb"#define SGDC_GATE_SIZE (\w+)", b"".join(both.values()))[1], 0)
    assert counts_end <= debug_region - gate_size


def work_on_both_chips(mesh, first: int) -> list[dict]:
    """A matmul of 32 tiles in turn on each chip of a pair, launched on chip `first` first; their counts."""
    import ttnn

    from runtime_patches.profiling.cycles import measure_chips

    chips = mesh.create_submeshes(ttnn.MeshShape(1, 1))
    operands = [
        [
            ttnn.from_torch(torch.ones(shape), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=chip)
            for shape in ((TILE, 32 * TILE), (32 * TILE, TILE))
        ]
        for chip in chips
    ]
    for chip in chips:
        ttnn.matmul(*operands[chips.index(chip)])  # compiles
        ttnn.synchronize_device(chip)
    found = measure_chips(chips, lambda: [ttnn.matmul(*operands[i]) for i in (first, 1 - first)])
    mesh.quiesce_devices()
    return found


@pytest.mark.sim
@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_two_chips_work_at_once_with_fast_dispatch(sim_mesh, record_property, first):
    mesh = sim_mesh((1, 2), "1x1", fabric=None, dispatch="fast", overlays=cycle_overlays(), variables=CYCLE_VARIABLES)
    programs = [counts[0, 0].program for counts in mesh.run(work_on_both_chips, first)]
    origin = min(program.start for program in programs)
    for chip, program in enumerate(programs):
        assert program.runs == 1 and program.cycles == program.end - program.start > 2000
        record_property(f"chip {chip}", (program.start - origin, program.end - origin))
    together = min(program.end for program in programs) - max(program.start for program in programs)
    assert together > 0.5 * min(program.cycles for program in programs), "most of either runs beside the other"
