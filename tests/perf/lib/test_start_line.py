# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Benches' start line: cores that the host starts one after another begin together."""

import pytest

from perf.lib.chip import cycles_until_end
from perf.lib.start_line import MOST_APART, StartLineError, common_start, signed
from runtime_patches.profiling.cycles import CYCLE_VARIABLES, CoreCycles, Span, cycle_overlays

KERNEL = """
#include <cstdint>
#include "api/dataflow/dataflow_api.h"
void kernel_main() {
    volatile tt_l1_ptr uint32_t* word = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(0));
    for (uint32_t i = 0; i < get_common_arg_val<uint32_t>(0); ++i) {
        *word = i;
    }
}
"""
CORES = [(0, 0), (1, 0)]
STEPS = 500


def counts_body(device, source: str, held: bool) -> dict:
    """The cycles of a kernel of STEPS steps on each RISC that moves data, of each core."""
    import contextlib

    import ttnn

    from perf.lib.start_line import held_at_start_line
    from runtime_patches.profiling.cycles import measure
    from tt_kernels.common.cores import core_set

    anchor = ttnn.empty([1, 8], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
    configs = (ttnn.ReaderConfigDescriptor(), ttnn.WriterConfigDescriptor())
    kernels = [
        ttnn.KernelDescriptor(
            kernel_source=source, core_ranges=core_set(*CORES), common_runtime_args=[STEPS], config=config
        )
        for config in configs
    ]
    semaphore = ttnn.SemaphoreDescriptor(id=0, core_ranges=core_set(*CORES), initial_value=0)
    program = ttnn.ProgramDescriptor(kernels=kernels, semaphores=[semaphore], cbs=[])

    def launch():
        with held_at_start_line(device) if held else contextlib.nullcontext():
            ttnn.generic_op([anchor, anchor], program)

    return measure(device, launch)


def test_kernels_that_did_not_start_together_are_no_measurement():
    start = (1 << 32) - 20
    line = {(x, 0): moving_kernels(start + 10 * x, start + 5) for x in range(4)}
    assert common_start(line) == 10, "the clock wraps"
    assert signed(10 - start) == 30
    assert cycles_until_end(line.values(), 10) == 1000
    with pytest.raises(StartLineError, match="started 20000 cycles apart, at most 64"):
        common_start(line | {(4, 0): moving_kernels(start, start + 20000)})


def moving_kernels(brisc: int, ncrisc: int) -> CoreCycles:
    """Return the cycles of a core whose data movement kernels started then, for 1000 cycles."""
    brisc, ncrisc = (Span(1000, 1, start % (1 << 32), (start + 1000) % (1 << 32)) for start in (brisc, ncrisc))
    return CoreCycles(None, brisc, ncrisc, None, None, None)


@pytest.mark.sim
def test_all_cores_start_together(sim_device, tmp_path):
    source = tmp_path / "steps.cpp"
    source.write_text(KERNEL)
    device = sim_device("2x1", overlays=cycle_overlays(), variables=CYCLE_VARIABLES)
    with pytest.raises(StartLineError, match=f"cycles apart, at most {MOST_APART}"):
        common_start(device.run(counts_body, str(source), False))
    counts = device.run(counts_body, str(source), True)
    assert sorted(counts) == CORES
    start = common_start(counts)
    for core, cycles in counts.items():
        for span in (cycles.brisc, cycles.ncrisc):
            assert 0 <= signed(start - span.start) <= MOST_APART, core
            assert STEPS < signed(span.end - start) < 100 * STEPS, "the wait does not count"
