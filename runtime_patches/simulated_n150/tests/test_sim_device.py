# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`sim_device`: the grid a test asks for, its own runtime files, and what is told of a kernel that hangs."""

import os
import re
from pathlib import Path

import pytest
import torch

from runtime_patches.simulated_n150.testing.worker import WorkerFailure, descendants, left_running

pytestmark = pytest.mark.sim

WAITS_FOR_EVER = """
#include <cstdint>
#include "api/dataflow/dataflow_api.h"
void kernel_main() {
    auto* semaphore = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(get_arg_val<uint32_t>(0)));
    noc_semaphore_wait(semaphore, 1);
}
"""


def add(device, x):
    import ttnn

    on_device = ttnn.from_torch(x, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    grid = device.compute_with_storage_grid_size()
    return (grid.x, grid.y), ttnn.to_torch(ttnn.add(on_device, on_device))


def never_incremented_semaphore(device):
    import ttnn

    core = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(0, 0))])
    arguments = ttnn.RuntimeArgs()
    arguments[0][0] = [0]
    kernel = ttnn.KernelDescriptor(
        kernel_source=WAITS_FOR_EVER,
        source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE,
        core_ranges=core,
        runtime_args=arguments,
        config=ttnn.WriterConfigDescriptor(),
    )
    semaphore = ttnn.SemaphoreDescriptor(id=0, core_ranges=core, initial_value=0)
    x = ttnn.empty([32, 32], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
    ttnn.generic_op([x, x], ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[semaphore], cbs=[]))
    ttnn.synchronize_device(device)


def root_files(device, path):
    return (Path(os.environ["TT_METAL_RUNTIME_ROOT"]) / path).read_text(), os.environ.get("LLAMA_ALSPEC_TEST")


@pytest.mark.parametrize("grid", ["1x1", "2x2", "4x3"])
def test_add_on_the_grid_asked_for(sim_device, on_silicon, grid):
    x = torch.randn(128, 64, generator=torch.Generator().manual_seed(3)).bfloat16()
    size, result = sim_device(grid).run(add, x)
    assert torch.equal(result, x + x)
    if not on_silicon:
        assert f"{size[0]}x{size[1]}" == grid


def test_own_files_and_variables(sim_device, on_silicon):
    if on_silicon:
        pytest.skip("starts a second process, and the board serves one")
    overlays = {"tt_metal/added_by_a_test.txt": b"here"}
    device = sim_device("1x1", overlays=overlays, variables={"LLAMA_ALSPEC_TEST": "none"})
    assert device.run(root_files, "tt_metal/added_by_a_test.txt") == ("here", "none")
    assert sim_device("1x1") is not device
    same = sim_device("1x1", overlays=dict(overlays), variables={"LLAMA_ALSPEC_TEST": "none"})
    assert same is device, "a worker is shared by those who ask for the same"


@pytest.mark.own_simulator  # its process and its diagnosis
@pytest.mark.parametrize("dispatch", ["slow", "fast"])
def test_a_hung_kernel_is_told_and_ends_its_simulator(sim_device, on_silicon, dispatch):
    if on_silicon:
        pytest.skip("a hung board needs a reset")
    device = sim_device("1x1", dispatch=dispatch)
    x = torch.ones(32, 32).bfloat16()
    device.run(add, x)
    simulators = descendants(device._process.pid)
    assert simulators
    with pytest.raises(WorkerFailure) as caught:
        device.run(never_incremented_semaphore, timeout=5)
    message = str(caught.value)
    where = "the simulated N150 1x1" + (" with fast dispatch" if dispatch == "fast" else "")
    assert f"never_incremented_semaphore did not end on {where} within 5 s" in message
    running = re.search(r"It was at: .*", message)[0]
    assert "ttnn.generic_op" in running or "ttnn.synchronize_device" in running, "the running op is named"
    assert re.search(r"== asked for\n(.*\n)*  tile .* BRISC pc 0x", message.split("last diagnosis of the simulator")[1])
    assert not left_running(simulators), "its simulator ended with it"
    assert torch.equal(sim_device("1x1", dispatch=dispatch).run(add, x)[1], x + x), "the next test has a fresh chip"
